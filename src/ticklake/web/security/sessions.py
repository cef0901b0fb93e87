"""Session cookies: an expiry and a signature. They do not reveal the token."""

from __future__ import annotations

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie

COOKIE = "ticklake-session"
SECONDS = 12 * 3600


def issued(token: str, now: float) -> str:
    until = str(int(now) + SECONDS)
    return f"{until}.{_signature(token, until)}"


def is_valid(token: str, cookies: str, now: float) -> bool:
    """Returns whether the header `Cookie` has an unexpired session of this token."""
    try:
        found = SimpleCookie(cookies).get(COOKIE)
    except CookieError:
        return False
    until, _, signature = (found.value if found else "").partition(".")
    genuine = hmac.compare_digest(signature.encode(), _signature(token, until).encode())
    return genuine and until.isdecimal() and now < int(until)


def _signature(token: str, until: str) -> str:
    return hmac.new(token.encode(), f"{COOKIE} {until}".encode(), hashlib.sha256).hexdigest()
