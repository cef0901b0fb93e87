"""Reconciliation: compares the files of the storage with the messages of the topic, and announces missing files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ticklake.contracts import BatchInfo
from ticklake.defaults import BATCH_TOPIC
from ticklake.storage import Storage, Watch
from ticklake.ticks import TickRange
from ticklake.topics import Run

_PAGE = 1000


class Difference(NamedTuple):
    """The keys of files without a message and of messages without a file, in tick order.

    `undecodable` counts messages that name no batch file.
    """

    unannounced: list[str]
    vanished: list[str]
    undecodable: int = 0


class Announced(NamedTuple):
    """The announced batch files by key, the number of messages, and how many of them cannot be decoded.

    `removed` are the files whose messages retention has removed.
    """

    keys: Mapping[str, TickRange]
    messages: int
    undecodable: int
    removed: frozenset[str] = frozenset()


def stored(storage: Storage, run_id: str) -> dict[str, TickRange]:
    """Returns the batch files of a run by key. Raises `OSError` if the storage cannot be reached."""
    return {f"{run_id}/{name}": ticks for ticks, name in sorted(Watch(storage, run_id).look())}


def announced(run: Run, topic: str = BATCH_TOPIC) -> Announced:
    """Reads all messages of a topic."""
    keys: dict[str, TickRange] = {}
    messages = undecodable = 0
    for info in _infos(run, topic):
        messages += 1
        if info is None or info.simulation_run_id != run.id:
            undecodable += 1
        else:
            keys[info.storage_key] = TickRange(info.tick_start, info.tick_end)
    # Read after the messages, so that a message that is removed meanwhile is not missed.
    return Announced(keys, messages, undecodable, run.removed_files(topic))


def compare(files: Mapping[str, TickRange], found: Announced) -> Difference:
    known = found.keys.keys() | found.removed
    unannounced = sorted((ticks, key) for key, ticks in files.items() if key not in known)
    vanished = sorted((ticks, key) for key, ticks in found.keys.items() if key not in files)
    return Difference([key for _, key in unannounced], [key for _, key in vanished], found.undecodable)


def publish(run: Run, storage: Storage, keys: Iterable[str], topic: str = BATCH_TOPIC) -> int:
    """Announces files and returns their number. A file that is announced twice is indexed once."""
    count = 0
    with run.writer(topic) as writer:
        for page in _pages(list(keys)):
            now = run.now_ms()
            infos = [_info(storage, run.id, key, now) for key in page if storage.exists(key)]
            writer.send_many(infos)
            count += len(infos)
    return count


def _info(storage: Storage, run_id: str, key: str, now_ms: int) -> BatchInfo:
    ticks = storage.batch(key).ticks
    return BatchInfo(
        simulation_run_id=run_id, storage_key=key, tick_start=ticks.start, tick_end=ticks.end, written_at_ms=now_ms
    )


def _infos(run: Run, topic: str) -> Iterator[BatchInfo | None]:
    after = 0
    while page := run.browse(topic, after=after, limit=_PAGE):
        for message in page:
            opened = message.opened()
            yield opened.payload if opened is not None and isinstance(opened.payload, BatchInfo) else None
        after = page[-1].id


def _pages(keys: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(keys), _PAGE):
        yield keys[start : start + _PAGE]
