from google.protobuf import any_pb2 as _any_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TopicEnvelope(_message.Message):
    __slots__ = ("message_id", "timestamp", "payload")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    timestamp: int
    payload: _any_pb2.Any
    def __init__(self, message_id: _Optional[str] = ..., timestamp: _Optional[int] = ..., payload: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...

class BatchInfo(_message.Message):
    __slots__ = ("simulation_run_id", "storage_key", "tick_start", "tick_end", "written_at_ms")
    SIMULATION_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STORAGE_KEY_FIELD_NUMBER: _ClassVar[int]
    TICK_START_FIELD_NUMBER: _ClassVar[int]
    TICK_END_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    simulation_run_id: str
    storage_key: str
    tick_start: int
    tick_end: int
    written_at_ms: int
    def __init__(self, simulation_run_id: _Optional[str] = ..., storage_key: _Optional[str] = ..., tick_start: _Optional[int] = ..., tick_end: _Optional[int] = ..., written_at_ms: _Optional[int] = ...) -> None: ...

class MetadataInfo(_message.Message):
    __slots__ = ("simulation_run_id", "storage_key", "written_at_ms")
    SIMULATION_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STORAGE_KEY_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    simulation_run_id: str
    storage_key: str
    written_at_ms: int
    def __init__(self, simulation_run_id: _Optional[str] = ..., storage_key: _Optional[str] = ..., written_at_ms: _Optional[int] = ...) -> None: ...

class RunCompleted(_message.Message):
    __slots__ = ("simulation_run_id", "last_tick", "written_at_ms", "format_version", "abandoned_by", "never_written")
    SIMULATION_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_TICK_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    ABANDONED_BY_FIELD_NUMBER: _ClassVar[int]
    NEVER_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    simulation_run_id: str
    last_tick: int
    written_at_ms: int
    format_version: int
    abandoned_by: str
    never_written: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, simulation_run_id: _Optional[str] = ..., last_tick: _Optional[int] = ..., written_at_ms: _Optional[int] = ..., format_version: _Optional[int] = ..., abandoned_by: _Optional[str] = ..., never_written: _Optional[_Iterable[int]] = ...) -> None: ...
