from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Trade(_message.Message):
    __slots__ = ("event_id", "number", "symbol", "quantity", "price_cents")
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    QUANTITY_FIELD_NUMBER: _ClassVar[int]
    PRICE_CENTS_FIELD_NUMBER: _ClassVar[int]
    event_id: str
    number: int
    symbol: str
    quantity: int
    price_cents: int
    def __init__(self, event_id: _Optional[str] = ..., number: _Optional[int] = ..., symbol: _Optional[str] = ..., quantity: _Optional[int] = ..., price_cents: _Optional[int] = ...) -> None: ...

class ValidationResult(_message.Message):
    __slots__ = ("event_id", "number", "valid", "errors")
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    VALID_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    event_id: str
    number: int
    valid: bool
    errors: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, event_id: _Optional[str] = ..., number: _Optional[int] = ..., valid: _Optional[bool] = ..., errors: _Optional[_Iterable[str]] = ...) -> None: ...
