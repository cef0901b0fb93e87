"""Opens the backend of a database URL."""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from ticklake.checks.places import local_path
from ticklake.database.errors import BadDatabaseUrl, PostgresMissing, UnknownDatabase
from ticklake.database.schema import Backend

_CHOICES = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "channel_binding": ("disable", "prefer", "require"),
    "gssencmode": ("disable", "prefer", "require"),
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
}
"""Allowed values of options that PostgreSQL's client only checks when it connects."""


def open_backend(url: str, *, max_pool_size: int = 10, min_idle: int = 2) -> Backend:
    """Opens `sqlite:///DIRECTORY` (four slashes for an absolute path) or `postgresql://…`. Connects on first use."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        from ticklake.database.sqlite import SqliteBackend

        return SqliteBackend(local_path(rest[1:], "A database"))
    if scheme in ("postgresql", "postgres"):
        try:
            from ticklake.database.postgres import PostgresBackend
        except ModuleNotFoundError as error:
            raise PostgresMissing(module=error.name) from error
        if mistake := postgres_mistake(url):
            raise BadDatabaseUrl(url=split_password(url)[0], reason=mistake)
        return PostgresBackend(url, max_pool_size=max_pool_size, min_idle=min_idle)
    raise UnknownDatabase(url=split_password(url)[0])


def split_password(url: str) -> tuple[str, str]:
    """Returns a URL without its password, and the password, from anywhere PostgreSQL would read it."""
    try:
        parts = urlsplit(url)
    except ValueError:  # not a URL, but the text before the last @ may still contain a password
        return url.rpartition("@")[2], ""
    credentials, at, host = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    query = parse_qsl(parts.query, keep_blank_values=True)
    secret = [value for name, value in query if name == "password"]
    if not password and not secret:
        return url, ""
    others = urlencode([(name, value) for name, value in query if name != "password"]) if secret else parts.query
    return joined(parts._replace(netloc=f"{user}{at}{host}", query=others)), "".join([unquote(password), *secret])


def joined(parts: SplitResult) -> str:
    """Joins the parts of a URL. `urlunsplit` drops the // of a URL without a host, which PostgreSQL accepts."""
    query = f"?{parts.query}" if parts.query else ""
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return f"{parts.scheme}://{parts.netloc}{parts.path}{query}{fragment}"


def postgres_mistake(url: str) -> str | None:
    """Returns why a PostgreSQL URL can never work, or None. Such an error must not be retried like an outage."""
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ModuleNotFoundError:
        return None
    open_url = split_password(url)[0]
    try:
        found = conninfo_to_dict(open_url)
    except ProgrammingError as error:
        return " ".join(str(error).split())
    try:
        conninfo_to_dict(url)
    except ProgrammingError:  # its text would show the password
        return "its password is not percent-encoded"
    for port in str(found.get("port") or "").split(","):
        if port and not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535):
            return f"{port!r} is not a port; a port is a number from 1 to 65535"
    for name, allowed in _CHOICES.items():
        if (value := found.get(name)) and value not in allowed:
            return f"{name} cannot be {value!r}; allowed: {', '.join(allowed)}"
    return None
