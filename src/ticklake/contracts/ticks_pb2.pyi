from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Vector(_message.Message):
    __slots__ = ("components",)
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    components: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, components: _Optional[_Iterable[int]] = ...) -> None: ...

class TickData(_message.Message):
    __slots__ = ("simulation_run_id", "tick_number", "capture_time_ms", "organisms", "cells", "rng_state", "strategy_states", "format_version")
    SIMULATION_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TICK_NUMBER_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ORGANISMS_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    RNG_STATE_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_STATES_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    simulation_run_id: str
    tick_number: int
    capture_time_ms: int
    organisms: _containers.RepeatedCompositeFieldContainer[OrganismState]
    cells: _containers.RepeatedCompositeFieldContainer[CellState]
    rng_state: bytes
    strategy_states: _containers.RepeatedCompositeFieldContainer[StrategyState]
    format_version: int
    def __init__(self, simulation_run_id: _Optional[str] = ..., tick_number: _Optional[int] = ..., capture_time_ms: _Optional[int] = ..., organisms: _Optional[_Iterable[_Union[OrganismState, _Mapping]]] = ..., cells: _Optional[_Iterable[_Union[CellState, _Mapping]]] = ..., rng_state: _Optional[bytes] = ..., strategy_states: _Optional[_Iterable[_Union[StrategyState, _Mapping]]] = ..., format_version: _Optional[int] = ...) -> None: ...

class StrategyState(_message.Message):
    __slots__ = ("strategy_type", "state_blob")
    STRATEGY_TYPE_FIELD_NUMBER: _ClassVar[int]
    STATE_BLOB_FIELD_NUMBER: _ClassVar[int]
    strategy_type: str
    state_blob: bytes
    def __init__(self, strategy_type: _Optional[str] = ..., state_blob: _Optional[bytes] = ...) -> None: ...

class OrganismState(_message.Message):
    __slots__ = ("organism_id", "parent_id", "birth_tick", "program_id", "energy", "ip", "initial_position", "dv", "data_pointers", "active_dp_index", "data_registers", "procedure_registers", "formal_param_registers", "location_registers", "data_stack", "location_stack", "call_stack", "is_dead", "instruction_failed", "failure_reason", "failure_call_stack")
    ORGANISM_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    BIRTH_TICK_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_ID_FIELD_NUMBER: _ClassVar[int]
    ENERGY_FIELD_NUMBER: _ClassVar[int]
    IP_FIELD_NUMBER: _ClassVar[int]
    INITIAL_POSITION_FIELD_NUMBER: _ClassVar[int]
    DV_FIELD_NUMBER: _ClassVar[int]
    DATA_POINTERS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_DP_INDEX_FIELD_NUMBER: _ClassVar[int]
    DATA_REGISTERS_FIELD_NUMBER: _ClassVar[int]
    PROCEDURE_REGISTERS_FIELD_NUMBER: _ClassVar[int]
    FORMAL_PARAM_REGISTERS_FIELD_NUMBER: _ClassVar[int]
    LOCATION_REGISTERS_FIELD_NUMBER: _ClassVar[int]
    DATA_STACK_FIELD_NUMBER: _ClassVar[int]
    LOCATION_STACK_FIELD_NUMBER: _ClassVar[int]
    CALL_STACK_FIELD_NUMBER: _ClassVar[int]
    IS_DEAD_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FAILED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_REASON_FIELD_NUMBER: _ClassVar[int]
    FAILURE_CALL_STACK_FIELD_NUMBER: _ClassVar[int]
    organism_id: int
    parent_id: int
    birth_tick: int
    program_id: str
    energy: int
    ip: Vector
    initial_position: Vector
    dv: Vector
    data_pointers: _containers.RepeatedCompositeFieldContainer[Vector]
    active_dp_index: int
    data_registers: _containers.RepeatedCompositeFieldContainer[RegisterValue]
    procedure_registers: _containers.RepeatedCompositeFieldContainer[RegisterValue]
    formal_param_registers: _containers.RepeatedCompositeFieldContainer[RegisterValue]
    location_registers: _containers.RepeatedCompositeFieldContainer[Vector]
    data_stack: _containers.RepeatedCompositeFieldContainer[RegisterValue]
    location_stack: _containers.RepeatedCompositeFieldContainer[Vector]
    call_stack: _containers.RepeatedCompositeFieldContainer[ProcFrame]
    is_dead: bool
    instruction_failed: bool
    failure_reason: str
    failure_call_stack: _containers.RepeatedCompositeFieldContainer[ProcFrame]
    def __init__(self, organism_id: _Optional[int] = ..., parent_id: _Optional[int] = ..., birth_tick: _Optional[int] = ..., program_id: _Optional[str] = ..., energy: _Optional[int] = ..., ip: _Optional[_Union[Vector, _Mapping]] = ..., initial_position: _Optional[_Union[Vector, _Mapping]] = ..., dv: _Optional[_Union[Vector, _Mapping]] = ..., data_pointers: _Optional[_Iterable[_Union[Vector, _Mapping]]] = ..., active_dp_index: _Optional[int] = ..., data_registers: _Optional[_Iterable[_Union[RegisterValue, _Mapping]]] = ..., procedure_registers: _Optional[_Iterable[_Union[RegisterValue, _Mapping]]] = ..., formal_param_registers: _Optional[_Iterable[_Union[RegisterValue, _Mapping]]] = ..., location_registers: _Optional[_Iterable[_Union[Vector, _Mapping]]] = ..., data_stack: _Optional[_Iterable[_Union[RegisterValue, _Mapping]]] = ..., location_stack: _Optional[_Iterable[_Union[Vector, _Mapping]]] = ..., call_stack: _Optional[_Iterable[_Union[ProcFrame, _Mapping]]] = ..., is_dead: _Optional[bool] = ..., instruction_failed: _Optional[bool] = ..., failure_reason: _Optional[str] = ..., failure_call_stack: _Optional[_Iterable[_Union[ProcFrame, _Mapping]]] = ...) -> None: ...

class ProcFrame(_message.Message):
    __slots__ = ("proc_name", "absolute_return_ip", "saved_prs", "saved_fprs", "fpr_bindings")
    class FprBindingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    PROC_NAME_FIELD_NUMBER: _ClassVar[int]
    ABSOLUTE_RETURN_IP_FIELD_NUMBER: _ClassVar[int]
    SAVED_PRS_FIELD_NUMBER: _ClassVar[int]
    SAVED_FPRS_FIELD_NUMBER: _ClassVar[int]
    FPR_BINDINGS_FIELD_NUMBER: _ClassVar[int]
    proc_name: str
    absolute_return_ip: Vector
    saved_prs: _containers.RepeatedCompositeFieldContainer[RegisterValue]
    saved_fprs: _containers.RepeatedCompositeFieldContainer[RegisterValue]
    fpr_bindings: _containers.ScalarMap[int, int]
    def __init__(self, proc_name: _Optional[str] = ..., absolute_return_ip: _Optional[_Union[Vector, _Mapping]] = ..., saved_prs: _Optional[_Iterable[_Union[RegisterValue, _Mapping]]] = ..., saved_fprs: _Optional[_Iterable[_Union[RegisterValue, _Mapping]]] = ..., fpr_bindings: _Optional[_Mapping[int, int]] = ...) -> None: ...

class RegisterValue(_message.Message):
    __slots__ = ("scalar", "vector")
    SCALAR_FIELD_NUMBER: _ClassVar[int]
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    scalar: int
    vector: Vector
    def __init__(self, scalar: _Optional[int] = ..., vector: _Optional[_Union[Vector, _Mapping]] = ...) -> None: ...

class CellState(_message.Message):
    __slots__ = ("flat_index", "molecule_type", "molecule_value", "owner_id")
    FLAT_INDEX_FIELD_NUMBER: _ClassVar[int]
    MOLECULE_TYPE_FIELD_NUMBER: _ClassVar[int]
    MOLECULE_VALUE_FIELD_NUMBER: _ClassVar[int]
    OWNER_ID_FIELD_NUMBER: _ClassVar[int]
    flat_index: int
    molecule_type: int
    molecule_value: int
    owner_id: int
    def __init__(self, flat_index: _Optional[int] = ..., molecule_type: _Optional[int] = ..., molecule_value: _Optional[int] = ..., owner_id: _Optional[int] = ...) -> None: ...

class CellStateList(_message.Message):
    __slots__ = ("cells",)
    CELLS_FIELD_NUMBER: _ClassVar[int]
    cells: _containers.RepeatedCompositeFieldContainer[CellState]
    def __init__(self, cells: _Optional[_Iterable[_Union[CellState, _Mapping]]] = ...) -> None: ...
