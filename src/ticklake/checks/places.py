"""Parses places: a directory of this machine or a URL. Refuses everything else."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from ticklake.errors import TickLakeError
from ticklake.logs import redacted

OBJECT_STORES = ("gs", "memory", "s3")
"""Object stores of fsspec that can create an object only if it does not exist yet."""

# RFC 3986: a relative path whose first part contains a colon must be written as ./a:b
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_MISREAD = re.compile(r"%[0-9A-Fa-f]{2}|\\")
_OTHER_NAME = "a directory with another name"
_DIRECTORY = "a directory of this machine, or its file:///… URL"
_STORE = f"a directory, or a URL of one of: {', '.join(OBJECT_STORES)}"


class UnsupportedPlace(TickLakeError):
    message = "{what} cannot be at {place!r}: {reason}. Give {allowed}."
    what: str
    place: str
    reason: str
    allowed: str


def local_path(place: str | os.PathLike[str], what: str, allowed: str = _DIRECTORY) -> Path:
    """Returns the path of a directory or file of this machine. Errors name `what`, such as "A lake"."""
    text = os.fspath(place)
    match = _SCHEME.fullmatch(text)
    scheme = match[1].lower() if match else ""
    if match and scheme == "file":
        return _path_of_url(text, what)
    if len(scheme) == 1 or text.startswith("\\\\"):
        _refuse(what, text, "it is a Windows path", allowed)
    if match or "://" in text:
        _refuse(what, text, f"{scheme or 'a URL inside a path'} is not supported", allowed)
    if "\0" in text or not text.strip():
        _refuse(what, text, "a path cannot be empty or contain a NUL character", allowed)
    try:
        return Path(text).expanduser()
    except RuntimeError:
        _refuse(what, text, "the home directory of this user is unknown", allowed)


def lake_path(place: str | os.PathLike[str]) -> Path:
    """Returns the path of a lake. Refuses `%20` and `\\`, which delta-rs reads as a space and as `/`."""
    path = local_path(place, "A lake")
    text = os.fspath(path.absolute())
    if found := _MISREAD.search(text):
        _refuse("A lake", text, f"{found[0]!r} in a path means another character in Delta tables", _OTHER_NAME)
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse("A lake", text, "its path is not valid UTF-8, which Delta tables require", _OTHER_NAME)
    return path


def storage_place(place: str | os.PathLike[str], what: str = "A storage") -> Path | str:
    """Returns a path, or the URL of an object store with its scheme in lower case."""
    text = os.fspath(place)
    match = _SCHEME.fullmatch(text)
    if match and match[1].lower() in OBJECT_STORES and match[2].startswith("//"):
        if not match[2].strip("/"):
            _refuse(what, text, "it has no bucket", _STORE)
        return f"{match[1].lower()}:{match[2]}"
    return local_path(place, what, _STORE)


def _path_of_url(text: str, what: str) -> Path:
    parts = urlsplit(text.strip())
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not parts.path.startswith("/"):
        _refuse(what, text, "this form of file URL is not supported", "file:///DIRECTORY")
    return local_path(unquote(parts.path), what)


def _refuse(what: str, place: str, reason: str, allowed: str) -> NoReturn:
    raise UnsupportedPlace(what=what, place=redacted(place), reason=reason, allowed=allowed)
