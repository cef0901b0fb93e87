"""Watches a run for new batch files. Only folders that have changed are listed again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ticklake.storage.files import Storage
from ticklake.storage.names import check_run_id, parse_batch_name
from ticklake.ticks import TickRange

# Two changes of a folder within one clock tick of the file system leave the same stamp. So a listing is trusted only if
# the stamp had not changed for this time.
_SETTLE_SECONDS = 2.0
# A stamp may be wrong (network file system, restored backup), so each folder is listed again after this time.
_SAFETY_SECONDS = 60.0
# Listing a folder that always changes may use at most this share of the time.
_SHARE = 0.1


@dataclass
class _Folder:
    """A known folder: its stamp, when it was first seen, when the folder was listed, and how long that took."""

    stamp: int | None
    seen: float
    listed: float = float("-inf")
    seconds: float = 0.0


class Watch:
    """Finds the batch files of a run, folder by folder. Its memory grows with folders, not with files.

    A look without changes costs one system call for each folder. A changed folder is listed completely, so the pauses
    between listings grow with its size.
    """

    def __init__(self, storage: Storage, run_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._storage, self._run_id, self._clock = storage, check_run_id(run_id), clock
        self._folders: dict[str, _Folder] = {}
        self.whole = False
        """True if the last look saw all files: it did not skip a changed folder to save time."""

    def look(self) -> Iterator[tuple[TickRange, str]]:
        """Yields ticks and names (relative to the run's folder) of the batch files in all folders that need listing.

        A look counts only if it is iterated to its end. Raises OSError if the storage cannot be reached.
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
        """A look that counts only if the block succeeds.

        If the block fails, the next look yields the same files again.
        """
        before = self._folders
        try:
            yield self.look()
        except BaseException:
            self._folders, self.whole = before, False
            raise

    def forget(self) -> None:
        """Forgets all listings. The next look lists everything."""
        self._folders, self.whole = {}, False

    def _key(self, below: str) -> str:
        return f"{self._run_id}/{below}".rstrip("/")

    def _stamped(self, below: str) -> _Folder:
        """Returns a copy of the known folder, with its current stamp."""
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
        """Returns the known folders directly below one that is not listed now."""
        depth = below.count("/") + 1
        return [path for path in self._folders if path.startswith(below) and path.count("/") == depth]
