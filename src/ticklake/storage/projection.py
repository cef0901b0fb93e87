"""Projected descriptors: `TickData` with only the needed fields, so that a decoder skips all others."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from ticklake.contracts import TickData

_Field = FieldDescriptorProto
_INT32, _INT64, _VECTOR = _Field.TYPE_INT32, _Field.TYPE_INT64, _Field.TYPE_MESSAGE

# Fields that the original added after our contract, with their numbers up to era D.
_LATER_OF_CELLS = {"marker": (5, _INT32, False)}
_LATER_OF_ORGANISMS = {
    "instruction_opcode_id": (22, _INT32, True),
    "instruction_energy_cost": (24, _INT32, True),
    "instruction_entropy_delta": (25, _INT32, True),
    "ip_before_fetch": (26, _VECTOR, False),
    "dv_before_fetch": (27, _VECTOR, False),
    "entropy_register": (29, _INT32, False),
    "molecule_marker_register": (30, _INT32, False),
    "genome_hash": (31, _INT64, False),
    "death_tick": (32, _INT64, True),
    "generation": (37, _INT32, False),
    "parent_genome_hash": (38, _INT64, True),
}
_LATER_OF_TICKS = {"total_organisms_created": (8, _INT64, True), "total_unique_genomes": (9, _INT64, True)}
_MUTATIONS = ("birth_mutations", 39)
_OF_MUTATIONS = (
    *(("plugin_class", 1, _Field.TYPE_STRING, False), ("kind", 2, _Field.TYPE_STRING, False)),
    *(("cells", 3, _INT32, True), ("old_values", 4, _INT32, True), ("new_values", 5, _INT32, True)),
    ("dv", 7, _Field.TYPE_SINT32, True),
)
_SAME = 10
"""Fields of organisms up to this number have kept it."""
_SINCE_E = {
    "data_stack": 12, "location_stack": 13, "is_dead": 15, "instruction_failed": 16, "failure_reason": 17,
    "instruction_opcode_id": 19, "instruction_energy_cost": 21, "instruction_entropy_delta": 22, "ip_before_fetch": 23,
    "dv_before_fetch": 24, "entropy_register": 26, "molecule_marker_register": 27, "genome_hash": 28, "death_tick": 29,
    "generation": 37, "parent_genome_hash": 38, "birth_mutations": 39,
}  # fmt: skip
"""The other fields of organisms that have kept their meaning on 2026-03-28, and their numbers since then."""


@cache
def project(
    fields: frozenset[str], opaque: frozenset[str] = frozenset(), *, later: bool = False, renumbered: bool = False
) -> Descriptor:
    """Returns `TickData` with only `fields`: names like `cells`, or one level down like `organisms.energy`.

    Fields keep their numbers and types, but messages in `opaque` become bytes. With `later`, there are also fields that
    the original added after our contract; with `renumbered`, organisms have the numbers since era E, and fields that do
    not exist any more are left out. Descriptors are cached.
    """
    file = FileDescriptorProto.FromString(TickData.DESCRIPTOR.file.serialized_pb)
    messages = {message.name: message for message in file.message_type}
    if later or renumbered:
        _add(messages["CellState"], _LATER_OF_CELLS)
        _add(messages["OrganismState"], _LATER_OF_ORGANISMS)
        _add(messages["TickData"], _LATER_OF_TICKS)
        _add_mutations(file, messages["OrganismState"])
    wanted = _tree(fields)
    _keep(messages["TickData"], wanted)
    for field in messages["TickData"].field:
        if wanted[field.name]:
            _keep(
                messages.get(field.type_name.rpartition(".")[2], DescriptorProto(name=field.name)), wanted[field.name]
            )
        if field.name in opaque:
            field.type = FieldDescriptorProto.TYPE_BYTES
            field.ClearField("type_name")
    if renumbered:
        _renumber(messages["OrganismState"])
    # A separate pool, because the default pool already has the full messages under these names.
    return DescriptorPool().AddSerializedFile(file.SerializeToString()).message_types_by_name["TickData"]


@cache
def head() -> Descriptor:
    """Returns the fields that tell whether a tick is in its place. Only a chunk has a number in field 4."""
    file = FileDescriptorProto.FromString(TickData.DESCRIPTOR.file.serialized_pb)
    message = next(message for message in file.message_type if message.name == "TickData")
    _keep(message, {"simulation_run_id", "tick_number", "format_version"})
    message.field.add(name="tick_count", number=4, type=_INT32, label=_Field.LABEL_OPTIONAL)
    return DescriptorPool().AddSerializedFile(file.SerializeToString()).message_types_by_name["TickData"]


@cache
def packed_int32s() -> Descriptor:
    """Returns a message with one column of cells. `CellDataColumns`, since era C, has three of them."""
    file = FileDescriptorProto(name="column.proto", syntax="proto3")
    message = file.message_type.add(name="Column")
    message.field.add(name="values", number=1, type=_INT32, label=_Field.LABEL_REPEATED)
    return DescriptorPool().AddSerializedFile(file.SerializeToString()).message_types_by_name["Column"]


def with_field(message: Descriptor, number: int) -> Descriptor:
    """Returns a message that also has a repeated field of this number, as bytes if it has none yet."""
    if number in message.fields_by_number:
        return message
    file = FileDescriptorProto()
    message.file.CopyToProto(file)
    changed = next(one for one in file.message_type if one.name == message.name)
    changed.field.add(name=f"field_{number}", number=number, type=_Field.TYPE_BYTES, label=_Field.LABEL_REPEATED)
    return DescriptorPool().AddSerializedFile(file.SerializeToString()).message_types_by_name[message.name]


def _add(message: DescriptorProto, later: dict[str, tuple[int, _Field.Type.ValueType, bool]]) -> None:
    for name, (number, kind, optional) in later.items():
        field = message.field.add(name=name, number=number, type=kind, label=_Field.LABEL_OPTIONAL)
        if kind == _VECTOR:
            field.type_name = f".{TickData.DESCRIPTOR.file.package}.Vector"
        if optional:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")


def _add_mutations(file: FileDescriptorProto, organism: DescriptorProto) -> None:
    event = file.message_type.add(name="MutationEvent")
    for name, number, kind, repeated in _OF_MUTATIONS:
        label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
        event.field.add(name=name, number=number, type=kind, label=label)
    name, number = _MUTATIONS
    field = organism.field.add(name=name, number=number, type=_Field.TYPE_MESSAGE, label=_Field.LABEL_REPEATED)
    field.type_name = f".{file.package}.{event.name}"


def _renumber(message: DescriptorProto) -> None:
    _keep(message, [field.name for field in message.field if field.number <= _SAME or field.name in _SINCE_E])
    for field in message.field:
        field.number = _SINCE_E.get(field.name, field.number)


def _tree(fields: Collection[str]) -> dict[str, set[str]]:
    """Returns top-level names, each with the wanted names below it. An empty set means all."""
    wanted: dict[str, set[str]] = {}
    for path in sorted(fields):
        name, _, below = path.partition(".")
        if not below:
            wanted[name] = set()
        elif wanted.setdefault(name, {below}):
            wanted[name].add(below)
    return wanted


def _keep(message: DescriptorProto, names: Collection[str]) -> None:
    """Removes every field of `message` that is not in `names`."""
    unknown = set(names) - {field.name for field in message.field}
    if unknown:
        known = ", ".join(field.name for field in message.field)
        raise ValueError(f"{message.name} has no field {', '.join(sorted(unknown))}; it has {known}")
    kept = [field for field in message.field if field.name in names]
    oneofs = sorted({field.oneof_index for field in kept if field.HasField("oneof_index")})
    declared = [message.oneof_decl[index] for index in oneofs]
    for field in kept:
        if field.HasField("oneof_index"):
            field.oneof_index = oneofs.index(field.oneof_index)
    message.CopyFrom(DescriptorProto(name=message.name, field=kept, oneof_decl=declared))
