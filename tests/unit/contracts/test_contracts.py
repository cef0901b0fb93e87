"""The wire contracts are what others read and write: their names and numbers never move."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from ticklake.contracts import generate, metadata_pb2, notifications_pb2, ticks_pb2

PACKAGE = "org.evochora.datapipeline.api.contracts"
CONTRACTS = Path(__file__).parents[3].parent / "shared" / "CONTRACTS.md"
OURS = {"format_version": 1000}


def messages() -> dict[str, Descriptor]:
    files = (metadata_pb2, notifications_pb2, ticks_pb2)
    return {name: message for file in files for name, message in file.DESCRIPTOR.message_types_by_name.items()}


def test_regenerating_changes_nothing(tmp_path: Path) -> None:
    generate.generate(tmp_path)
    made = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*_pb2.py*")}
    assert len(made) == 6
    assert made == {path: (generate.SOURCES / path).read_text() for path in made}


def test_all_messages_are_in_the_package_of_the_original() -> None:
    assert {message.full_name for message in messages().values()} == {f"{PACKAGE}.{name}" for name in messages()}


@pytest.mark.skipif(not CONTRACTS.exists(), reason="the table of contracts, ../shared/CONTRACTS.md, is not here")
def test_names_numbers_and_types_are_those_of_the_table() -> None:
    table = dict(re.findall(r"^- \*\*(\w+)\*\*: (.+)$", CONTRACTS.read_text(), re.MULTILINE))
    ours = {name: "; ".join(map(described, fields_of(message))) for name, message in messages().items()}
    del ours["RunCompleted"]  # ours alone
    assert ours == table


def test_our_own_fields_keep_away_from_the_numbers_of_the_original() -> None:
    ours = {name: field.number for message in messages().values() for name, field in message.fields_by_name.items()
            if name in OURS}  # fmt: skip
    assert ours == OURS


def fields_of(message: Descriptor) -> list[FieldDescriptor]:
    return [field for field in message.fields if field.name not in OURS]


def described(field: FieldDescriptor) -> str:
    oneof = field.containing_oneof
    note = f" (oneof {oneof.name})" if oneof and len(oneof.fields) > 1 else ""
    return f"{field.number} {field.name}: {kind(field)}{note}"


def kind(field: FieldDescriptor) -> str:
    names = {FieldDescriptor.TYPE_STRING: "string", FieldDescriptor.TYPE_INT64: "int64",
             FieldDescriptor.TYPE_INT32: "int32", FieldDescriptor.TYPE_BOOL: "bool",
             FieldDescriptor.TYPE_BYTES: "bytes"}  # fmt: skip
    if field.message_type and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return f"map<{kind(key)}, {kind(value)}>"
    name = field.message_type.name if field.message_type else names[field.type]
    optional = field.containing_oneof is not None and len(field.containing_oneof.fields) == 1
    return f"repeated {name}" if field.is_repeated else f"optional {name}" if optional else name
