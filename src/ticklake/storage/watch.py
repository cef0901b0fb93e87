"""Watching a run's batch files grow: only folders in which something has changed are listed again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ticklake.storage.files import Storage
from ticklake.storage.names import check_run_id, parse_batch_name
from ticklake.ticks import TickRange

# File systems stamp a folder with the time of their last clock tick, so two changes can leave the same stamp. A listing
# is only trusted once its stamp has been the same for so long.
_SETTLE_SECONDS = 2.0
# A stamp may be wrong (a network file system, a restored backup): look for its own sake once in a while.
_SAFETY_SECONDS = 60.0
# A folder that changes all the time is listed for at most this share of the time.
_SHARE = 0.1


@dataclass
class _Folder:
    """What is remembered of a folder: its stamp, when that was first seen, when it was listed, how long that took."""

    stamp: int | None
    seen: float
    listed: float = float("-inf")
    seconds: float = 0.0


class Watch:
    """The batch files of a run, folder by folder. What it remembers grows with folders, not with files.

    A look where nothing has changed costs one call a folder, whatever the folder holds. A flat folder that has changed
    must be listed whole, there is no other way; so the pauses grow with it.
    """

    def __init__(self, storage: Storage, run_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._storage, self._run_id, self._clock = storage, check_run_id(run_id), clock
        self._folders: dict[str, _Folder] = {}
        self.whole = False
        """Whether the last look has seen everything that was there: it left no folder out to save time."""

    def look(self) -> Iterator[tuple[TickRange, str]]:
        """The ticks and names (below the run's folder) of the batch files in every folder worth listing again.

        Only a look that is taken to its end is remembered. OSError where the storage cannot be reached.
        """
        waiting, whole = [""], True
        found: dict[str, _Folder] = {}
        self.whole = False
        while waiting:
            below = waiting.pop()
            folder = self._stamped(below)
            found[below] = folder
            if not self._is_due(folder):
                whole = whole and self._is_settled(folder)
                waiting += self._children(below)
                continue
            started = self._clock()
            folders, files = self._storage.entries(self._key(below))
            waiting += [f"{below}{name}/" for name in folders]
            for name in files:
                ticks = parse_batch_name(name)
                if ticks is not None:
                    yield ticks, below + name
            folder.listed, folder.seconds = started, self._clock() - started
        self._folders, self.whole = found, whole

    @contextmanager
    def looking(self) -> Iterator[Iterator[tuple[TickRange, str]]]:
        """A look that is remembered only if the block succeeds, for files that something is done with.

        If the block fails, the next look shows the same files again.
        """
        before = self._folders
        try:
            yield self.look()
        except BaseException:
            self._folders, self.whole = before, False
            raise

    def forget(self) -> None:
        """The next look lists everything."""
        self._folders, self.whole = {}, False

    def _key(self, below: str) -> str:
        return f"{self._run_id}/{below}".rstrip("/")

    def _stamped(self, below: str) -> _Folder:
        """A copy of what is remembered, with the stamp of now."""
        now, stamp = self._clock(), self._storage.changed_at(self._key(below))
        known = self._folders.get(below)
        if known is None:
            return _Folder(stamp, now)
        seen = known.seen if known.stamp == stamp else now
        return _Folder(stamp, seen, known.listed, known.seconds)

    def _is_due(self, folder: _Folder) -> bool:
        since = self._clock() - folder.listed
        if self._is_settled(folder) and since < _SAFETY_SECONDS:
            return False
        return since >= folder.seconds * (1 / _SHARE - 1)

    def _is_settled(self, folder: _Folder) -> bool:
        return folder.stamp is not None and folder.listed >= folder.seen + _SETTLE_SECONDS

    def _children(self, below: str) -> list[str]:
        """The folders remembered directly below one that is not listed now."""
        depth = below.count("/") + 1
        return [path for path in self._folders if path.startswith(below) and path.count("/") == depth]
