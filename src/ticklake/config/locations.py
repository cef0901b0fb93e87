"""Normalizes locations: directories relative to the configuration file, and database URLs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar
from urllib.parse import quote, urlsplit

from pydantic import AfterValidator, ValidationInfo

from ticklake.checks.places import UnsupportedPlace, local_path, storage_place
from ticklake.database.url import joined, postgres_mistake

_Place = TypeVar("_Place")
_VARIABLE = re.compile(r"\$\{\??([^}]*)\}")


def with_credentials(url: str, username: str | None, password: str) -> str:
    """Adds user and password to a PostgreSQL URL. SQLite has neither."""
    if url.startswith("sqlite:"):
        return url
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    user = quote(username, safe="") if username else user
    credentials = f"{user}:{quote(password, safe='')}" if password else user
    return joined(parts._replace(netloc=f"{credentials}@{host}" if credentials else host))


def _directory(text: str, info: ValidationInfo) -> str:
    """Returns the absolute path of a directory on this machine."""
    if not text.strip():
        raise ValueError("must be a directory")
    return str(_absolute(text, info))


def _storage(text: str, info: ValidationInfo) -> str:
    """Returns the absolute path of a directory, or the URL of an object store."""
    if not text.strip():
        raise ValueError("must be a directory")
    place = _parsed(storage_place, _filled_in(text))
    return place if isinstance(place, str) else str(_absolute(text, info))


def _database_url(text: str, info: ValidationInfo) -> str:
    """Returns `sqlite:///DIRECTORY` or `postgresql://…`. Also accepts a plain directory or a JDBC URL."""
    text = text.strip()
    if text.startswith("jdbc:h2:"):
        text = _h2_path(text)
    text = text.removeprefix("jdbc:").removeprefix("sqlite:///")
    if text.startswith(("postgresql://", "postgres://")):
        urlsplit(text)  # its error says what is wrong
        if mistake := postgres_mistake(text):
            raise ValueError(mistake)
        return text
    if not text or ("://" in text and not text.startswith("file:")):
        raise ValueError("must be sqlite:///DIRECTORY, postgresql://USER@HOST/DATABASE or a directory")
    return f"sqlite:///{_absolute(text, info)}"


def _h2_path(url: str) -> str:
    path = url.removeprefix("jdbc:h2:").partition(";")[0].removeprefix("file:")
    if path.startswith(("mem:", "tcp:", "ssl:", "zip:")):
        raise ValueError("must be an H2 database in a file; other H2 databases have no counterpart here")
    return path


def _absolute(text: str, info: ValidationInfo) -> Path:
    path = _parsed(local_path, _filled_in(text))
    base: Path = (info.context or {}).get("base", Path())
    return Path(os.path.normpath(base.absolute() / path))


def _parsed(parse: Callable[[str, str], _Place], text: str) -> _Place:
    try:
        return parse(text, "it")
    except UnsupportedPlace as error:
        raise ValueError(str(error).removesuffix(".")) from error


def _filled_in(text: str) -> str:
    return _VARIABLE.sub(_variable, text)


def _variable(match: re.Match[str]) -> str:
    """Substitutes a variable inside quotes, which HOCON does not do but paths of the original rely on."""
    name = match[1]
    if name == "user.home":
        return str(Path.home())
    if name not in os.environ:
        raise ValueError(f"${{{name}}} is not set in the environment")
    return os.environ[name]


Directory = Annotated[str, AfterValidator(_directory)]
StoragePlace = Annotated[str, AfterValidator(_storage)]
DatabaseUrl = Annotated[str, AfterValidator(_database_url)]
