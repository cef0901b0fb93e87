"""What every test gets: no unexpected warning in the log, no deadline for examples on a busy machine."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("normal", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("nightly", parent=settings.get_profile("normal"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "normal"))


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture(autouse=True)
def _no_unexpected_warning(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that makes the product warn says so: `@pytest.mark.warns("STALE_ACK")`."""
    expected = [pattern for marker in request.node.iter_markers("warns") for pattern in marker.args]
    handler = _Warnings()
    logger = logging.getLogger("ticklake")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    unexpected = [text for text in handler.messages if not any(re.search(pattern, text) for pattern in expected)]
    assert not unexpected, f"unexpected warnings in the log: {unexpected}"
