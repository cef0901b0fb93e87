"""Topics, consumer groups and claims of a run; release and reset."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from google.protobuf import json_format
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ticklake.topics import Run, runs_in
from ticklake.topics.admin import StoredMessage, parse_position, reset_text
from ticklake.web.forms import Form, posted
from ticklake.web.rendering import chosen_run, explained, nothing, page, part, site_of

CLAIMS, TAIL = 100, 20


class Shown(NamedTuple):
    """A message of the tail, decoded if its type is known."""

    at_ms: int
    id: str
    kind: str
    text: str


@explained
def show_topics(request: Request) -> Response:
    runs = runs_chosen(request)
    if not runs:
        return nothing(request, "Topics and groups", chosen_run(request), hint="ticklake run node.conf")
    topics = sorted((one for run in runs for one in run.topics()), key=lambda one: one.topic)
    topic = request.query_params.get("topic") or next((one.topic for one in topics), None)
    tail = [message for run in runs for message in run.browse_last(topic, TAIL)] if topic else []
    newest = sorted(tail, key=lambda message: message.published_at_ms)[: -TAIL - 1 : -1]
    return page(
        request,
        "topics.html",
        run_id=runs[0].id,
        topics=topics,
        topic=topic,
        tail=list(map(shown, newest)),
        **_state(runs),
    )


def reset(request: Request, form: Form) -> Response:
    """Sets a group to another position; with `dry_run`, only shows the effect."""
    runs, topic, group, dry_run = named_runs(request), form["topic"] or "", form["group"] or "", form.says("dry_run")
    known = [run for run in runs if any(one.group == group for one in run.groups.list(topic))]
    to = parse_position(form["to"] or form["where"] or "earliest")
    ahead = sum(run.groups.reset(topic, group, to, dry_run=dry_run) for run in known or runs)
    return _answer(request, runs, reset_text(topic, group, to, ahead, dry_run=dry_run))


def release(request: Request, form: Form) -> Response:
    """Releases a claim, or all that are stuck."""
    runs = named_runs(request)
    which = {"topic": form["topic"], "group": form["group"], "message_id": form["message"]}
    held = [(run, run.claims.named(**which, stuck=form.says("stuck"))) for run in runs]
    note = f"{sum(run.claims.release(claims) for run, claims in held):,} claims released."
    return _answer(request, runs, note)


def runs_chosen(request: Request) -> list[Run]:
    """Returns the chosen run in each database that has it."""
    run_id = chosen_run(request)
    return runs_in(site_of(request).databases, run_id) if run_id is not None else []


def named_runs(request: Request) -> list[Run]:
    """Returns the run in the path of a changing request, in each database that has it."""
    databases, run_id = site_of(request).databases, request.path_params["run"]
    if not databases:
        raise HTTPException(HTTPStatus.NOT_FOUND)  # no button sends this
    return runs_in(databases, run_id) or [databases[0].run(run_id, create=False)]


def _state(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns the oldest claims of all databases. Reads one more than shown, to detect that there are more."""
    claims = sorted((one for run in runs for one in run.claims.list(limit=CLAIMS + 1)), key=lambda one: -one.age_ms)
    groups = [one for run in runs for one in run.groups.list()]
    return {"groups": groups, "claims": claims[:CLAIMS], "more_claims": len(claims) > CLAIMS}


def _answer(request: Request, runs: Sequence[Run], note: str) -> Response:
    prefix = request.app.state.prefix
    return part("_groups.html", note=note, run_id=runs[0].id, prefix=prefix, read_only=False, **_state(runs))


def shown(message: StoredMessage) -> Shown:
    opened = message.opened()
    if opened is None:
        return Shown(message.published_at_ms, message.message_id, "?", "cannot be decoded")
    text = json.dumps(json_format.MessageToDict(opened.payload, preserving_proto_field_name=True))
    return Shown(message.published_at_ms, message.message_id, opened.payload.DESCRIPTOR.name, text)


ROUTES = [
    Route("/topics", show_topics),
    Route("/runs/{run}/groups/reset", posted(reset), methods=["POST"]),
    Route("/runs/{run}/claims/release", posted(release), methods=["POST"]),
]
