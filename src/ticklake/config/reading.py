"""From the values in a file to one class's options: spelling, types and secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ticklake.config.document import Document
from ticklake.config.locations import split_password
from ticklake.config.options import Options
from ticklake.config.source import KeyPath
from ticklake.config.suggest import fold, listed, nearest
from ticklake.errors import BadValue, SecretInFile, UnknownKey

Entry = tuple[KeyPath, Any]

_REASONS = {
    "missing": "it is missing",
    "int_type": "it must be a whole number",
    "int_parsing": "it must be a whole number",
    "int_from_float": "it must be a whole number",
    "float_type": "it must be a number",
    "float_parsing": "it must be a number",
    "bool_type": "it must be true or false",
    "bool_parsing": "it must be true or false",
    "string_type": "it must be text",
    "list_type": "it must be a list in brackets [ ]",
    "model_type": "it must be a block in braces { }",
    "dict_type": "it must be a block in braces { }",
}


def read_options(
    document: Document, model: type[Options], block: KeyPath, entries: Sequence[Entry]
) -> tuple[Options, dict[str, str]]:
    """The options of a block, and where each one that was given is."""
    origins: dict[KeyPath, KeyPath] = {}
    named = _canonical(document, model, entries, (), origins)
    _refuse_written_secrets(document, named, origins)
    try:
        options = model.model_validate(named, context={"base": document.file.absolute().parent})
    except ValidationError as error:
        raise _first_problem(document, error.errors()[0], block, origins) from error
    return options, {".".join(name): document.where(path) for name, path in origins.items()}


def _canonical(
    document: Document, model: type[Options], entries: Sequence[Entry], prefix: KeyPath, origins: dict[KeyPath, KeyPath]
) -> dict[str, Any]:
    """The values by the names of the model's fields; `origins` gets the way back to the file's keys."""
    named: dict[str, Any] = {}
    for path, value in entries:
        name = _field(document, model, path)
        if name in named:
            other = ".".join(origins[(*prefix, name)])
            raise BadValue(where=document.where(path), key=".".join(path), reason=f"it is given already as {other}")
        origins[(*prefix, name)] = path
        inner = model.model_fields[name].annotation
        if isinstance(value, dict) and isinstance(inner, type) and issubclass(inner, Options) and not inner.free:
            inner_entries = [((*path, key), inner_value) for key, inner_value in value.items()]
            named[name] = _canonical(document, inner, inner_entries, (*prefix, name), origins)
        else:
            named[name] = value
    return named


def _field(document: Document, model: type[Options], path: KeyPath) -> str:
    words = {name: name for name in model.model_fields} | model.synonyms
    found = {fold(word): name for word, name in words.items()}.get(fold(path[-1]))
    if found is None:
        allowed = listed(model.model_fields)
        raise UnknownKey(where=document.where(path), key=".".join(path), hint=nearest(path[-1], words), allowed=allowed)
    return found


def _refuse_written_secrets(document: Document, named: Mapping[str, Any], origins: Mapping[KeyPath, KeyPath]) -> None:
    secrets = {"password": bool(named.get("password")), "url": bool(split_password(str(named.get("url", "")))[1])}
    for name, present in secrets.items():
        path = origins.get((name,))
        definition = document.at(path) if path else None
        if present and path and definition and definition.written_out:
            raise SecretInFile(where=definition.where, key=".".join(path))


def _first_problem(
    document: Document, problem: ErrorDetails, block: KeyPath, origins: Mapping[KeyPath, KeyPath]
) -> BadValue:
    location = tuple(str(part) for part in problem["loc"])
    path = next((origins[location[:n]] for n in range(len(location), 0, -1) if location[:n] in origins), None)
    message = problem["msg"].removeprefix("Value error, ")
    reason = _REASONS.get(problem["type"], message[:1].lower() + message[1:])
    key = ".".join(path or (*block, *location))
    return BadValue(where=document.where(path or block), key=key, reason=reason)
