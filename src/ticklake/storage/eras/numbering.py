"""Reads the metadata of a run in both numberings. The original changed the numbers of its fields on 2026-01-29."""

from __future__ import annotations

import json
from itertools import islice

from google.protobuf.message import DecodeError

from ticklake.contracts import EnvironmentConfig, SimulationMetadata
from ticklake.storage.eras.wire import BYTES, VARINT, Field, fields, signed
from ticklake.world import FORK

_TEXTS = {1: "simulation_run_id", 5: "resolved_config_json"}
_NUMBERS = {2: "start_time_ms", 3: "initial_seed"}
_PROGRAMS_BEFORE, _PROGRAMS = 6, 4
_CONFIG, _BUILD_REVISION, _FORK = 5, 6, 7
_ONLY_BEFORE = (9, 10)
"""The numbers of `resolved_config_json` and `sampling_interval` before the change. Nothing has them since."""
_MOST_FIELDS = 100_000
_TOPOLOGIES = {"TORUS": True, "BOUND": False}


def metadata_of(message: bytes) -> SimulationMetadata:
    """Returns the metadata in a message of either numbering. Raises ValueError or DecodeError if it has neither."""
    found = list(islice(fields(message), _MOST_FIELDS + 1))
    if len(found) > _MOST_FIELDS:
        raise ValueError(f"it has more than {_MOST_FIELDS:,} fields")
    is_new = any(
        field.number == _CONFIG and field.kind == BYTES and message[field.start : field.start + 1] == b"{"
        for field in found
    )
    if not is_new:
        return _before(message, found)
    if both := [field.number for field in found if field.number in _ONLY_BEFORE]:
        raise ValueError(f"field {_CONFIG} is a JSON object, as since 2026-01-29, but it has field {both[0]} of before")
    return _since(message, found)


def _before(message: bytes, found: list[Field]) -> SimulationMetadata:
    try:
        return SimulationMetadata.FromString(message)
    except DecodeError:
        # The inner messages of programs changed in 2025-11 and later. Nothing here reads them.
        return SimulationMetadata.FromString(_without(message, found, _PROGRAMS_BEFORE))


def _without(message: bytes, found: list[Field], number: int) -> bytes:
    starts = [0, *(field.end for field in found)]
    return b"".join(
        message[start : field.end] for start, field in zip(starts, found, strict=False) if field.number != number
    )


def _since(message: bytes, found: list[Field]) -> SimulationMetadata:
    metadata, own = SimulationMetadata(), dict[str, str]()
    for field in found:
        content = message[field.start : field.end]
        if field.number in _TEXTS and field.kind == BYTES:
            setattr(metadata, _TEXTS[field.number], content.decode())
        elif field.number in _NUMBERS and field.kind == VARINT:
            setattr(metadata, _NUMBERS[field.number], signed(field.value))
        elif field.number == _PROGRAMS and field.kind == BYTES:
            metadata.programs.add(program_id=_text(content, 1))
        elif field.number == _BUILD_REVISION and field.kind == BYTES:
            own["evochora.build_revision"] = content.decode()
        elif field.number == _FORK and field.kind == BYTES:
            own[FORK] = _fork(content)
    _add_config(metadata)
    metadata.user_metadata.update(own)
    return metadata


def _add_config(metadata: SimulationMetadata) -> None:
    """Adds what only the configuration has since the change: shape, topology, sampling interval, the user's notes."""
    try:
        config = json.loads(metadata.resolved_config_json)
        shape, topology = config["environment"]["shape"], config["environment"].get("topology", "TORUS")
        edges = [_TOPOLOGIES[topology]] * len(shape)
        metadata.environment.CopyFrom(EnvironmentConfig(dimensions=len(shape), shape=shape, toroidal=edges))
        metadata.sampling_interval = config.get("samplingInterval", 1)
        for name, value in config.get("metadata", {}).items():
            metadata.user_metadata[name] = value if isinstance(value, str) else json.dumps(value)
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"its configuration has no valid environment and samplingInterval ({reason})") from error


def _fork(content: bytes) -> str:
    first, last = (_number(content, number) for number in (2, 3))
    return f"{_text(content, 1)} {first}-{last}"


def _text(content: bytes, number: int) -> str:
    found = _last(content, number, BYTES)
    return content[found.start : found.end].decode() if found else ""


def _number(content: bytes, number: int) -> int:
    found = _last(content, number, VARINT)
    return signed(found.value) if found else 0


def _last(content: bytes, number: int, kind: int) -> Field | None:
    """Returns the last field of this number and wire type, which counts."""
    found = None
    for field in fields(content):
        if field.number == number and field.kind == kind:
            found = field
    return found
