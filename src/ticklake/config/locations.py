"""Where things are: directories relative to the configuration file, database URLs in our own spelling."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import AfterValidator, ValidationInfo

_VARIABLE = re.compile(r"\$\{\??([^}]*)\}")


def with_credentials(url: str, username: str | None, password: str) -> str:
    """A PostgreSQL URL with its user and password; SQLite has neither."""
    if url.startswith("sqlite:"):
        return url
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    user = quote(username, safe="") if username else user
    credentials = f"{user}:{quote(password, safe='')}" if password else user
    return urlunsplit(parts._replace(netloc=f"{credentials}@{host}" if credentials else host))


def _located(text: str, info: ValidationInfo) -> str:
    """A directory as an absolute path; anything with a scheme (`s3://…`) as it is."""
    if not text.strip():
        raise ValueError("it needs a directory")
    return text if "://" in text else str(_absolute(text, info))


def _database_url(text: str, info: ValidationInfo) -> str:
    """`sqlite:///DIRECTORY` or `postgresql://…`, from these, a plain directory, or what JDBC calls them."""
    text = text.strip()
    if text.startswith("jdbc:h2:"):
        text = _h2_path(text)
    text = text.removeprefix("jdbc:").removeprefix("sqlite:///")
    if text.startswith(("postgresql://", "postgres://")):
        urlsplit(text)  # its own error tells what is wrong with it
        return text
    if "://" in text or not text:
        raise ValueError("it must be sqlite:///DIRECTORY, postgresql://USER@HOST/DATABASE or a directory")
    return f"sqlite:///{_absolute(text, info)}"


def _h2_path(url: str) -> str:
    path = url.removeprefix("jdbc:h2:").partition(";")[0].removeprefix("file:")
    if path.startswith(("mem:", "tcp:", "ssl:", "zip:")):
        raise ValueError("only H2 databases in a file have a counterpart here, a directory")
    return path


def _absolute(text: str, info: ValidationInfo) -> Path:
    if "\0" in text:
        raise ValueError("it holds a zero character, which no path can")
    try:
        path = Path(_VARIABLE.sub(_variable, text)).expanduser()
    except RuntimeError as error:
        raise ValueError("there is no such user's home directory") from error
    base: Path = (info.context or {}).get("base", Path())
    return Path(os.path.normpath(base.absolute() / path))


def _variable(match: re.Match[str]) -> str:
    """HOCON substitutes nothing inside quotes; the original's paths expect it all the same."""
    name = match[1]
    if name == "user.home":
        return str(Path.home())
    if name not in os.environ:
        raise ValueError(f"${{{name}}} is not set in the environment")
    return os.environ[name]


Directory = Annotated[str, AfterValidator(_located)]
DatabaseUrl = Annotated[str, AfterValidator(_database_url)]
