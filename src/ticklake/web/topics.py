"""Topics, consumer groups and claims of a run: how far behind, who holds what; release and reset."""

from __future__ import annotations

import json
from datetime import datetime
from http import HTTPStatus
from typing import Any, NamedTuple

from google.protobuf import json_format
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ticklake.topics import Run
from ticklake.topics.browse import StoredMessage
from ticklake.web.forms import Form, posted
from ticklake.web.rendering import chosen_run, explained, nothing, page, part, site_of

CLAIMS, TAIL = 100, 20


class Shown(NamedTuple):
    """A message of the tail, decoded where its type is known here."""

    at_ms: int
    id: str
    kind: str
    text: str


@explained
def show_topics(request: Request) -> Response:
    run = run_of(request)
    if run is None:
        return nothing(request, "Topics and groups", chosen_run(request), hint="ticklake run node.conf")
    topics = run.topics()
    topic = request.query_params.get("topic") or next((one.topic for one in topics), None)
    tail = [shown(message) for message in reversed(run.browse_last(topic, TAIL))] if topic else []
    return page(request, "topics.html", run_id=run.id, topics=topics, topic=topic, tail=tail, **_state(run))


def reset(request: Request, form: Form) -> Response:
    """Another position for a group; with `dry_run` only what it would mean."""
    run, topic, group, dry_run = named_run(request), form["topic"] or "", form["group"] or "", form.says("dry_run")
    ahead = run.groups.reset(topic, group, _position(form["to"] or form["where"] or "earliest"), dry_run=dry_run)
    note = f"{group} {'would have' if dry_run else 'has'} {ahead:,} messages of {topic} ahead."
    return _answer(request, run, note)


def release(request: Request, form: Form) -> Response:
    """Takes a claim, or all that are stuck, from their holders."""
    run = named_run(request)
    held = run.claims.list(
        topic=form["topic"], group=form["group"], message_id=form["message"], stuck=form.says("stuck"), limit=None
    )
    note = f"{run.claims.release(held):,} claims released."
    return _answer(request, run, note)


def run_of(request: Request) -> Run | None:
    """The chosen run in the database; None where there is no database, or the run is not in it."""
    database, run_id = site_of(request).database, chosen_run(request)
    if database is None or run_id is None or run_id not in database.runs():
        return None
    return database.run(run_id, create=False)


def named_run(request: Request) -> Run:
    """The run of an address that changes something."""
    database = site_of(request).database
    if database is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)  # there was no button for it
    return database.run(request.path_params["run"], create=False)


def _state(run: Run) -> dict[str, Any]:
    return {"groups": run.groups.list(), "claims": run.claims.list(limit=CLAIMS)}


def _answer(request: Request, run: Run, note: str) -> Response:
    prefix = request.app.state.prefix
    return part("groups.html", note=note, run_id=run.id, prefix=prefix, read_only=False, **_state(run))


def shown(message: StoredMessage) -> Shown:
    opened = message.opened()
    if opened is None:
        return Shown(message.published_at_ms, message.message_id, "?", "cannot be decoded here")
    text = json.dumps(json_format.MessageToDict(opened.payload, preserving_proto_field_name=True))
    return Shown(message.published_at_ms, message.message_id, opened.payload.DESCRIPTOR.name, text)


def _position(target: str) -> str | datetime:
    try:
        return datetime.fromisoformat(target).astimezone()
    except ValueError:
        return target


ROUTES = [
    Route("/topics", show_topics),
    Route("/runs/{run}/groups/reset", posted(reset), methods=["POST"]),
    Route("/runs/{run}/claims/release", posted(release), methods=["POST"]),
]
