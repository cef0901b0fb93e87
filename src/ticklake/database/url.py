"""From a database URL to the backend that speaks to it."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from ticklake.database.schema import Backend
from ticklake.errors import PostgresMissing, UnknownDatabase
from ticklake.places import local_path


def open_backend(url: str, *, max_pool_size: int = 10, min_idle: int = 2) -> Backend:
    """`sqlite:///DIRECTORY` (four slashes where it is absolute) or `postgresql://…`; connects on first use."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        from ticklake.database.sqlite import SqliteBackend

        return SqliteBackend(local_path(rest[1:], "A database"))
    if scheme in ("postgresql", "postgres"):
        try:
            from ticklake.database.postgres import PostgresBackend
        except ModuleNotFoundError as error:
            raise PostgresMissing(module=error.name) from error
        return PostgresBackend(url, max_pool_size=max_pool_size, min_idle=min_idle)
    raise UnknownDatabase(url=split_password(url)[0])


def split_password(url: str) -> tuple[str, str]:
    """A URL without its password, and the password, wherever PostgreSQL would take it from."""
    try:
        parts = urlsplit(url)
    except ValueError:  # no URL: what stands before the last @ may be a password all the same
        return url.rpartition("@")[2], ""
    credentials, at, host = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    query = parse_qsl(parts.query, keep_blank_values=True)
    secret = [value for name, value in query if name == "password"]
    if not password and not secret:
        return url, ""
    others = urlencode([(name, value) for name, value in query if name != "password"]) if secret else parts.query
    return urlunsplit(parts._replace(netloc=f"{user}{at}{host}", query=others)), "".join([unquote(password), *secret])
