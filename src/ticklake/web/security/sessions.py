"""What a browser keeps once somebody has shown the token: an expiry and a signature, from which nobody learns it."""

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
    """Whether the header `Cookie` has a session of this token that is not over."""
    try:
        found = SimpleCookie(cookies).get(COOKIE)
    except CookieError:
        return False
    until, _, signature = (found.value if found else "").partition(".")
    genuine = hmac.compare_digest(signature.encode(), _signature(token, until).encode())
    return genuine and until.isdecimal() and now < int(until)


def _signature(token: str, until: str) -> str:
    return hmac.new(token.encode(), f"{COOKIE} {until}".encode(), hashlib.sha256).hexdigest()
