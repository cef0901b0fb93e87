from ticklake.contracts import ticks_pb2 as _ticks_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SimulationMetadata(_message.Message):
    __slots__ = ("simulation_run_id", "start_time_ms", "initial_seed", "environment", "energy_strategies", "programs", "initial_organisms", "user_metadata", "resolved_config_json", "sampling_interval", "format_version")
    class UserMetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SIMULATION_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    INITIAL_SEED_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    ENERGY_STRATEGIES_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    INITIAL_ORGANISMS_FIELD_NUMBER: _ClassVar[int]
    USER_METADATA_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    simulation_run_id: str
    start_time_ms: int
    initial_seed: int
    environment: EnvironmentConfig
    energy_strategies: _containers.RepeatedCompositeFieldContainer[EnergyStrategyConfig]
    programs: _containers.RepeatedCompositeFieldContainer[ProgramArtifact]
    initial_organisms: _containers.RepeatedCompositeFieldContainer[InitialOrganismSetup]
    user_metadata: _containers.ScalarMap[str, str]
    resolved_config_json: str
    sampling_interval: int
    format_version: int
    def __init__(self, simulation_run_id: _Optional[str] = ..., start_time_ms: _Optional[int] = ..., initial_seed: _Optional[int] = ..., environment: _Optional[_Union[EnvironmentConfig, _Mapping]] = ..., energy_strategies: _Optional[_Iterable[_Union[EnergyStrategyConfig, _Mapping]]] = ..., programs: _Optional[_Iterable[_Union[ProgramArtifact, _Mapping]]] = ..., initial_organisms: _Optional[_Iterable[_Union[InitialOrganismSetup, _Mapping]]] = ..., user_metadata: _Optional[_Mapping[str, str]] = ..., resolved_config_json: _Optional[str] = ..., sampling_interval: _Optional[int] = ..., format_version: _Optional[int] = ...) -> None: ...

class EnvironmentConfig(_message.Message):
    __slots__ = ("dimensions", "shape", "toroidal")
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    TOROIDAL_FIELD_NUMBER: _ClassVar[int]
    dimensions: int
    shape: _containers.RepeatedScalarFieldContainer[int]
    toroidal: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, dimensions: _Optional[int] = ..., shape: _Optional[_Iterable[int]] = ..., toroidal: _Optional[_Iterable[bool]] = ...) -> None: ...

class EnergyStrategyConfig(_message.Message):
    __slots__ = ("strategy_type", "config_json")
    STRATEGY_TYPE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    strategy_type: str
    config_json: str
    def __init__(self, strategy_type: _Optional[str] = ..., config_json: _Optional[str] = ...) -> None: ...

class InitialOrganismSetup(_message.Message):
    __slots__ = ("organism_id", "program_id", "position", "initial_energy")
    ORGANISM_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    INITIAL_ENERGY_FIELD_NUMBER: _ClassVar[int]
    organism_id: int
    program_id: str
    position: _ticks_pb2.Vector
    initial_energy: int
    def __init__(self, organism_id: _Optional[int] = ..., program_id: _Optional[str] = ..., position: _Optional[_Union[_ticks_pb2.Vector, _Mapping]] = ..., initial_energy: _Optional[int] = ...) -> None: ...

class ProgramArtifact(_message.Message):
    __slots__ = ("program_id", "sources", "machine_code_layout", "initial_world_objects", "source_map", "call_site_bindings", "relative_coord_to_linear_address", "linear_address_to_coord", "label_address_to_name", "register_alias_map", "proc_name_to_param_names", "token_map", "token_lookup")
    class SourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: SourceLines
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[SourceLines, _Mapping]] = ...) -> None: ...
    class RelativeCoordToLinearAddressEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class RegisterAliasMapEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class ProcNameToParamNamesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ParameterNames
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ParameterNames, _Mapping]] = ...) -> None: ...
    PROGRAM_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    MACHINE_CODE_LAYOUT_FIELD_NUMBER: _ClassVar[int]
    INITIAL_WORLD_OBJECTS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_MAP_FIELD_NUMBER: _ClassVar[int]
    CALL_SITE_BINDINGS_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_COORD_TO_LINEAR_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LINEAR_ADDRESS_TO_COORD_FIELD_NUMBER: _ClassVar[int]
    LABEL_ADDRESS_TO_NAME_FIELD_NUMBER: _ClassVar[int]
    REGISTER_ALIAS_MAP_FIELD_NUMBER: _ClassVar[int]
    PROC_NAME_TO_PARAM_NAMES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_MAP_FIELD_NUMBER: _ClassVar[int]
    TOKEN_LOOKUP_FIELD_NUMBER: _ClassVar[int]
    program_id: str
    sources: _containers.MessageMap[str, SourceLines]
    machine_code_layout: _containers.RepeatedCompositeFieldContainer[InstructionMapping]
    initial_world_objects: _containers.RepeatedCompositeFieldContainer[PlacedMoleculeMapping]
    source_map: _containers.RepeatedCompositeFieldContainer[SourceMapEntry]
    call_site_bindings: _containers.RepeatedCompositeFieldContainer[CallSiteBinding]
    relative_coord_to_linear_address: _containers.ScalarMap[str, int]
    linear_address_to_coord: _containers.RepeatedCompositeFieldContainer[LinearAddressToCoord]
    label_address_to_name: _containers.RepeatedCompositeFieldContainer[LabelMapping]
    register_alias_map: _containers.ScalarMap[str, int]
    proc_name_to_param_names: _containers.MessageMap[str, ParameterNames]
    token_map: _containers.RepeatedCompositeFieldContainer[TokenMapEntry]
    token_lookup: _containers.RepeatedCompositeFieldContainer[FileTokenLookup]
    def __init__(self, program_id: _Optional[str] = ..., sources: _Optional[_Mapping[str, SourceLines]] = ..., machine_code_layout: _Optional[_Iterable[_Union[InstructionMapping, _Mapping]]] = ..., initial_world_objects: _Optional[_Iterable[_Union[PlacedMoleculeMapping, _Mapping]]] = ..., source_map: _Optional[_Iterable[_Union[SourceMapEntry, _Mapping]]] = ..., call_site_bindings: _Optional[_Iterable[_Union[CallSiteBinding, _Mapping]]] = ..., relative_coord_to_linear_address: _Optional[_Mapping[str, int]] = ..., linear_address_to_coord: _Optional[_Iterable[_Union[LinearAddressToCoord, _Mapping]]] = ..., label_address_to_name: _Optional[_Iterable[_Union[LabelMapping, _Mapping]]] = ..., register_alias_map: _Optional[_Mapping[str, int]] = ..., proc_name_to_param_names: _Optional[_Mapping[str, ParameterNames]] = ..., token_map: _Optional[_Iterable[_Union[TokenMapEntry, _Mapping]]] = ..., token_lookup: _Optional[_Iterable[_Union[FileTokenLookup, _Mapping]]] = ...) -> None: ...

class SourceLines(_message.Message):
    __slots__ = ("lines",)
    LINES_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, lines: _Optional[_Iterable[str]] = ...) -> None: ...

class InstructionMapping(_message.Message):
    __slots__ = ("position", "instruction")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    position: _ticks_pb2.Vector
    instruction: int
    def __init__(self, position: _Optional[_Union[_ticks_pb2.Vector, _Mapping]] = ..., instruction: _Optional[int] = ...) -> None: ...

class PlacedMoleculeMapping(_message.Message):
    __slots__ = ("position", "molecule")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MOLECULE_FIELD_NUMBER: _ClassVar[int]
    position: _ticks_pb2.Vector
    molecule: PlacedMolecule
    def __init__(self, position: _Optional[_Union[_ticks_pb2.Vector, _Mapping]] = ..., molecule: _Optional[_Union[PlacedMolecule, _Mapping]] = ...) -> None: ...

class PlacedMolecule(_message.Message):
    __slots__ = ("type", "value")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    type: int
    value: int
    def __init__(self, type: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...

class SourceMapEntry(_message.Message):
    __slots__ = ("linear_address", "source_info")
    LINEAR_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_INFO_FIELD_NUMBER: _ClassVar[int]
    linear_address: int
    source_info: SourceInfo
    def __init__(self, linear_address: _Optional[int] = ..., source_info: _Optional[_Union[SourceInfo, _Mapping]] = ...) -> None: ...

class SourceInfo(_message.Message):
    __slots__ = ("file_name", "line_number", "column_number")
    FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    LINE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    COLUMN_NUMBER_FIELD_NUMBER: _ClassVar[int]
    file_name: str
    line_number: int
    column_number: int
    def __init__(self, file_name: _Optional[str] = ..., line_number: _Optional[int] = ..., column_number: _Optional[int] = ...) -> None: ...

class CallSiteBinding(_message.Message):
    __slots__ = ("linear_address", "target_coord")
    LINEAR_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TARGET_COORD_FIELD_NUMBER: _ClassVar[int]
    linear_address: int
    target_coord: _ticks_pb2.Vector
    def __init__(self, linear_address: _Optional[int] = ..., target_coord: _Optional[_Union[_ticks_pb2.Vector, _Mapping]] = ...) -> None: ...

class LinearAddressToCoord(_message.Message):
    __slots__ = ("linear_address", "coord")
    LINEAR_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    COORD_FIELD_NUMBER: _ClassVar[int]
    linear_address: int
    coord: _ticks_pb2.Vector
    def __init__(self, linear_address: _Optional[int] = ..., coord: _Optional[_Union[_ticks_pb2.Vector, _Mapping]] = ...) -> None: ...

class LabelMapping(_message.Message):
    __slots__ = ("linear_address", "label_name")
    LINEAR_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LABEL_NAME_FIELD_NUMBER: _ClassVar[int]
    linear_address: int
    label_name: str
    def __init__(self, linear_address: _Optional[int] = ..., label_name: _Optional[str] = ...) -> None: ...

class ParameterNames(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class TokenMapEntry(_message.Message):
    __slots__ = ("source_info", "token_info")
    SOURCE_INFO_FIELD_NUMBER: _ClassVar[int]
    TOKEN_INFO_FIELD_NUMBER: _ClassVar[int]
    source_info: SourceInfo
    token_info: TokenInfo
    def __init__(self, source_info: _Optional[_Union[SourceInfo, _Mapping]] = ..., token_info: _Optional[_Union[TokenInfo, _Mapping]] = ...) -> None: ...

class TokenInfo(_message.Message):
    __slots__ = ("token_text", "token_type", "scope")
    TOKEN_TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_TYPE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    token_text: str
    token_type: str
    scope: str
    def __init__(self, token_text: _Optional[str] = ..., token_type: _Optional[str] = ..., scope: _Optional[str] = ...) -> None: ...

class FileTokenLookup(_message.Message):
    __slots__ = ("file_name", "lines")
    FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    file_name: str
    lines: _containers.RepeatedCompositeFieldContainer[LineTokenLookup]
    def __init__(self, file_name: _Optional[str] = ..., lines: _Optional[_Iterable[_Union[LineTokenLookup, _Mapping]]] = ...) -> None: ...

class LineTokenLookup(_message.Message):
    __slots__ = ("line_number", "columns")
    LINE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    line_number: int
    columns: _containers.RepeatedCompositeFieldContainer[ColumnTokenLookup]
    def __init__(self, line_number: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[ColumnTokenLookup, _Mapping]]] = ...) -> None: ...

class ColumnTokenLookup(_message.Message):
    __slots__ = ("column_number", "tokens")
    COLUMN_NUMBER_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    column_number: int
    tokens: _containers.RepeatedCompositeFieldContainer[TokenInfo]
    def __init__(self, column_number: _Optional[int] = ..., tokens: _Optional[_Iterable[_Union[TokenInfo, _Mapping]]] = ...) -> None: ...
