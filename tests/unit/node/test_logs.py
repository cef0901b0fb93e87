"""One line an event."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from ticklake import logs
from ticklake.services.base import Service

log = logging.getLogger("ticklake.somewhere")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level, of_notices = list(root.handlers), root.level, logs.notices.level
    yield io.StringIO()
    root.handlers[:] = before
    root.setLevel(level)
    logs.notices.setLevel(of_notices)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.warns("two")
def test_a_message_of_several_lines_is_one_line(stream: io.StringIO, form: logs.Format) -> None:
    logs.set_up(logging.INFO, form, stream)
    try:
        raise OSError("disk\nfull")
    except OSError:
        log.warning("one\n  two\r\nthree", exc_info=True)
    (line,) = stream.getvalue().splitlines()
    assert "one two three (OSError: disk full)" in line


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.warns("2J")
def test_nothing_that_is_logged_plays_tricks_on_the_terminal(stream: io.StringIO, form: logs.Format) -> None:
    logs.set_up(logging.INFO, form, stream)
    log.warning("run %s", "\x1b[2J\x07\x9b")
    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()


@pytest.mark.parametrize(
    ("level", "shown"), [(logging.INFO, True), (logging.WARNING, True), (logging.ERROR, False)], ids=["-v", "", "-q"]
)
def test_notices_are_printed_without_v_and_not_with_quiet(stream: io.StringIO, level: int, shown: bool) -> None:
    logs.set_up(level, "text", stream)
    logs.notices.info("Continuing")
    log.info("Working")
    assert ("Continuing" in stream.getvalue(), "Working" in stream.getvalue()) == (shown, level == logging.INFO)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:hush@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:hu@sh@host/db?a=b@c", "postgresql://me:***@host/db?a=b@c"),
        ("postgresql://:hush@/db", "postgresql://:***@/db"),
        ("postgresql://host/db?password=hush&sslmode=require", "postgresql://host/db?password=***&sslmode=require"),
        ("host=h PASSWORD=hush sslpassword='hu sh' user=me", "host=h PASSWORD=*** sslpassword=*** user=me"),
        ("http://host:8080/a@b and sqlite:////srv/db", "http://host:8080/a@b and sqlite:////srv/db"),
    ],
)
def test_passwords_are_left_out_wherever_a_connection_has_them(text: str, shown: str) -> None:
    assert logs.redacted(text) == shown


@pytest.mark.warns("connect")
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_password_of_a_url_is_not_logged(stream: io.StringIO, form: logs.Format) -> None:
    logs.set_up(logging.INFO, form, stream)
    log.warning("cannot connect to %s", "postgresql://me:hush@host/db")
    assert "hush" not in stream.getvalue()
    assert "postgresql://me:***@host/db" in stream.getvalue()


def test_json_says_when_what_where_and_which_service(stream: io.StringIO) -> None:
    class Speaker(Service):
        def run(self) -> None:
            log.info("at %s", "work")

    logs.set_up(logging.INFO, "json", stream)
    speaker = Speaker("speaker")
    speaker.start()
    assert speaker.join(30)
    log.info("outside")
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    (said,) = [event for event in events if event["message"] == "at work"]
    assert set(said) == {"ts", "level", "logger", "message", "service"}
    assert (said["level"], said["logger"], said["service"]) == ("info", "ticklake.somewhere", "speaker")
    assert said["ts"].endswith("Z")
    assert "service" not in events[-1]


def test_set_up_twice_logs_once(stream: io.StringIO) -> None:
    logs.set_up(logging.INFO, "text", stream)
    logs.set_up(logging.INFO, "json", stream)
    log.info("hello")
    assert len(stream.getvalue().splitlines()) == 1
