"""Dead letters of a run: reasons, content, replay and discard."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf import json_format
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ticklake.checks.numbers import InvalidOption
from ticklake.topics import DeadLetter, DeadLetterFilter, Run
from ticklake.web.forms import Form, posted
from ticklake.web.pages.topics import named_runs, runs_chosen
from ticklake.web.rendering import chosen_run, explained, nothing, page, part

LISTED, LOOKED_AT, REASONS = 50, 1000, 12


class Reason(NamedTuple):
    text: str
    letters: int
    share: float


@explained
def show_letters(request: Request) -> Response:
    runs = runs_chosen(request)
    if not runs:
        return nothing(request, "Dead letters", chosen_run(request), "No database is given.")
    return page(request, "dead_letters.html", run_id=runs[0].id, **_state(runs, _filter(request.query_params)))


def replay(request: Request, form: Form) -> Response:
    return _act(request, form, "replayed")


def discard(request: Request, form: Form) -> Response:
    return _act(request, form, "discarded")


def reasons(letters: list[DeadLetter]) -> list[Reason]:
    """Returns the most frequent first lines of the errors."""
    counts = Counter((letter.error.strip().splitlines() or ["no reason"])[0][:160] for letter in letters)
    most = counts.most_common(REASONS)
    return [Reason(text, count, count / most[0][1]) for text, count in most]


def payload(letter: DeadLetter) -> str:
    """Returns the message as JSON if its type is known, else its first bytes."""
    opened = letter.opened()
    if opened is None:
        return letter.envelope[:512].hex(" ")
    plain = json_format.MessageToDict(opened.payload, preserving_proto_field_name=True)
    return f"{opened.payload.DESCRIPTOR.full_name}\n{json.dumps(plain, indent=2)}"


def _act(request: Request, form: Form, done: str) -> Response:
    """Acts on the selected dead letters, or on all that match."""
    runs = named_runs(request)
    shown = DeadLetterFilter(form["topic"], form["group"], None, form["error"])
    chosen = [_named(one) for one in form.all("letter")]
    which = [shown] if form.says("every") else chosen
    if form.says("dry_run"):
        note = f"{sum(run.dead_letters.count(one) for run in runs for one in which):,} dead letters would be {done}."
    else:
        letters = [run.dead_letters for run in runs]
        acts = [one.replay if done == "replayed" else one.discard for one in letters]
        note = f"{sum(act(one) for act in acts for one in which):,} dead letters {done}."
    if not which:
        note = "Nothing was selected."
    prefix = request.app.state.prefix
    return part(
        "_dead_letters.html", note=note, run_id=runs[0].id, prefix=prefix, read_only=False, **_state(runs, shown)
    )


def _named(text: str) -> DeadLetterFilter:
    """Parses the value of a checkbox: topic, group and message id as JSON."""
    try:
        topic, group, message_id = map(str, json.loads(text))
    except (TypeError, ValueError, RecursionError):
        raise InvalidOption(option="letter", value=text, allowed="a list of topic, group and message id") from None
    return DeadLetterFilter(topic, group, message_id)


def _filter(values: Mapping[str, str]) -> DeadLetterFilter:
    return DeadLetterFilter(values.get("topic") or None, values.get("group") or None, None, values.get("error") or None)


def _state(runs: Sequence[Run], which: DeadLetterFilter) -> dict[str, Any]:
    """Returns a bounded view: reasons of the first thousand, details of the first fifty."""
    every = [one for run in runs for one in run.dead_letters.list(which, LOOKED_AT)]
    found = sorted(every, key=lambda one: one.dead_at_ms)[:LOOKED_AT]
    letters = [(one, payload(one), json.dumps([one.topic, one.group, one.message_id])) for one in found[:LISTED]]
    count = sum(run.dead_letters.count(which) for run in runs)
    return {"which": which, "reasons": reasons(found), "letters": letters, "count": count}


ROUTES = [
    Route("/dead-letters", show_letters),
    Route("/runs/{run}/dead-letters/replay", posted(replay), methods=["POST"]),
    Route("/runs/{run}/dead-letters/discard", posted(discard), methods=["POST"]),
]
