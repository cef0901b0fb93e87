"""From the values in a file to one class's options: spelling, types and secrets."""

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
    "missing": "it is missing",
    "int_type": "it must be a whole number",
    "int_parsing": "it must be a whole number",
    "int_from_float": "it must be a whole number",
    "float_type": "it must be a number",
    "float_parsing": "it must be a number",
    "bool_type": "it must be true or false",
    "bool_parsing": "it must be true or false",
    "string_type": "it must be text, in quotes where it looks like something else",
    "greater_than_equal": "it must be {ge} or more",
    "greater_than": "it must be more than {gt}",
    "less_than": "it must be less than {lt}",
    "too_short": "it must have {min_length} items, not {actual_length}",
    "too_long": "it must have {max_length} items, not {actual_length}",
    "finite_number": "it must be a number that has an end",
    "int_parsing_size": "it is too large",
    "list_type": "it must be a list in brackets [ ]",
    "model_type": "it must be a block in braces { }",
    "dict_type": "it must be a block in braces { }",
}


def read_options(
    document: Document, model: type[Options], block: KeyPath, entries: Sequence[Entry], beside: Sequence[str]
) -> tuple[Options, dict[str, str]]:
    """The options of a block, and where each one that was given is. `beside` names what else may stand in the block."""
    origins: dict[KeyPath, KeyPath] = {}
    try:
        named = _canonical(document, model, entries, (), origins)
    except _NoSuchField as unknown:
        others = beside if unknown.path[:-1] == block else ()
        raise _unknown_key(document, unknown.model, unknown.path, others) from None
    _refuse_written_secrets(document, origins)
    try:
        options = model.model_validate(named, context={"base": document.file.absolute().parent})
    except ValidationError as error:
        raise _first_problem(document, error.errors()[0], block, model, origins) from error
    return options, {".".join(name): document.origin(path) for name, path in origins.items()}


class _NoSuchField(Exception):
    def __init__(self, model: type[Options], path: KeyPath) -> None:
        super().__init__()
        self.model, self.path = model, path


def _canonical(
    document: Document, model: type[Options], entries: Sequence[Entry], prefix: KeyPath, origins: dict[KeyPath, KeyPath]
) -> dict[str, Any]:
    """The values by the names of the model's fields; `origins` gets the way back to the file's keys."""
    named: dict[str, Any] = {}
    for path, value in entries:
        name = _field(model, path)
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


def _field(model: type[Options], path: KeyPath) -> str:
    words = {name: name for name in model.model_fields} | model.synonyms
    found = {fold(word): name for word, name in words.items()}.get(fold(path[-1]))
    if found is None:
        raise _NoSuchField(model, path)
    return found


def _unknown_key(document: Document, model: type[Options], path: KeyPath, beside: Sequence[str] = ()) -> UnknownKey:
    hint = nearest(path[-1], [*model.model_fields, *model.synonyms, *beside])
    allowed = listed([*model.model_fields, *beside, *(["spark.…"] if model.free else [])])
    return UnknownKey(where=document.where(path), key=".".join(path), hint=hint, allowed=allowed)


def _refuse_written_secrets(document: Document, origins: Mapping[KeyPath, KeyPath]) -> None:
    """A password is the environment's alone, also where a reference, or a default before it, says it in the file."""
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
