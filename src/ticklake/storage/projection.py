"""Projected descriptors: `TickData` with only the needed fields, so that a decoder skips all others."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from ticklake.contracts import TickData


@cache
def project(fields: frozenset[str], opaque: frozenset[str] = frozenset()) -> Descriptor:
    """Returns `TickData` with only `fields`: names like `cells`, or one level down like `organisms.energy`.

    Fields keep their numbers and types, but messages in `opaque` become bytes. Descriptors are cached.
    """
    file = FileDescriptorProto.FromString(TickData.DESCRIPTOR.file.serialized_pb)
    messages = {message.name: message for message in file.message_type}
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
    # A separate pool, because the default pool already has the full messages under these names.
    return DescriptorPool().AddSerializedFile(file.SerializeToString()).message_types_by_name["TickData"]


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
