"""Reads the options of a class from the values in a file: spelling, types and secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ticklake.config.errors import BadValue, SecretInFile, UnknownKey
from ticklake.config.hocon import FROM_OUTSIDE, Document, KeyPath, fold, listed, nearest
from ticklake.config.options import Options
from ticklake.database.url import split_password
from ticklake.errors import TickLakeError

Entry = tuple[KeyPath, Any]

_REASONS = {
    "missing": "is missing",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text; use quotes if it looks like another type",
    "greater_than_equal": "must be {ge} or more",
    "greater_than": "must be more than {gt}",
    "less_than": "must be less than {lt}",
    "too_short": "must have {min_length} items, not {actual_length}",
    "too_long": "must have {max_length} items, not {actual_length}",
    "finite_number": "must be finite",
    "int_parsing_size": "is too large",
    "list_type": "must be a list in brackets [ ]",
    "model_type": "must be a block in braces {{ }}",
    "dict_type": "must be a block in braces {{ }}",
}


def read_options(
    document: Document, model: type[Options], block: KeyPath, entries: Sequence[Entry], beside: Sequence[str]
) -> tuple[Options, dict[str, str]]:
    """Returns the options of a block and the origin of each given one. `beside` lists other keys of the block."""
    origins: dict[KeyPath, KeyPath] = {}
    try:
        named = _canonical(document, model, entries, (), origins)
    except _UnknownField as unknown:
        others = beside if unknown.path[:-1] == block else ()
        raise _unknown_key(document, unknown.model, unknown.path, others) from None
    _refuse_written_secrets(document, origins)
    try:
        options = model.model_validate(named, context={"base": document.file.absolute().parent})
    except ValidationError as error:
        raise _first_problem(document, error.errors()[0], block, model, origins) from error
    return options, {".".join(name): document.origin(path) for name, path in origins.items()}


class _UnknownField(Exception):
    def __init__(self, model: type[Options], path: KeyPath) -> None:
        super().__init__()
        self.model, self.path = model, path


def _canonical(
    document: Document, model: type[Options], entries: Sequence[Entry], prefix: KeyPath, origins: dict[KeyPath, KeyPath]
) -> dict[str, Any]:
    """Returns the values by field name. Adds to `origins` the key in the file for each field."""
    named: dict[str, Any] = {}
    for path, value in entries:
        name = _field(model, path)
        if name in named:
            other = ".".join(origins[(*prefix, name)])
            raise BadValue(where=document.where(path), key=".".join(path), reason=f"is already given as {other}")
        origins[(*prefix, name)] = path
        inner = model.model_fields[name].annotation
        if isinstance(value, dict) and isinstance(inner, type) and issubclass(inner, Options) and not inner.free:
            inner_entries = [((*path, key), inner_value) for key, inner_value in value.items()]
            named[name] = _canonical(document, inner, inner_entries, (*prefix, name), origins)
        else:
            named[name] = value
    return named


def _field(model: type[Options], path: KeyPath) -> str:
    words = {name: name for name in model.model_fields} | model.synonyms
    found = {fold(word): name for word, name in words.items()}.get(fold(path[-1]))
    if found is None:
        raise _UnknownField(model, path)
    return found


def _unknown_key(document: Document, model: type[Options], path: KeyPath, beside: Sequence[str] = ()) -> UnknownKey:
    hint = nearest(path[-1], [*model.model_fields, *model.synonyms, *beside])
    allowed = listed([*model.model_fields, *beside, *(["spark.…"] if model.free else [])])
    return UnknownKey(where=document.where(path), key=".".join(path), hint=hint, allowed=allowed)


def _refuse_written_secrets(document: Document, origins: Mapping[KeyPath, KeyPath]) -> None:
    """Raises `SecretInFile` for a password in the file, even as a default or behind a reference."""
    for name in ("password", "url"):
        path = origins.get((name,))
        if path and any(_secret(name, text) for text in document.spellings(path)):
            raise SecretInFile(where=document.where(path), key=".".join(path))


def _secret(name: str, text: str) -> str:
    secret = text if name == "password" else split_password(text)[1]
    return secret.replace(FROM_OUTSIDE, "")


def _first_problem(
    document: Document, problem: ErrorDetails, block: KeyPath, model: type[Options], origins: Mapping[KeyPath, KeyPath]
) -> TickLakeError:
    location = tuple(str(part) for part in problem["loc"])
    path = next((origins[location[:n]] for n in range(len(location), 0, -1) if location[:n] in origins), None)
    if problem["type"] == "extra_forbidden" and path:
        inner = model.model_fields[location[0]].annotation
        return _unknown_key(document, cast(type[Options], inner), (*path, *location[1:]))
    key = ".".join(path or (*block, *location))
    return BadValue(where=document.where(path or block), key=key, reason=_reason(problem))


def _reason(problem: ErrorDetails) -> str:
    if problem["type"] in _REASONS:
        return _REASONS[problem["type"]].format(**problem.get("ctx", {}))
    message = problem["msg"].removeprefix("Value error, ")
    return message[:1].lower() + message[1:]
