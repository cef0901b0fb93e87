"""Searches places that storage passes over for batch files. Follows links, with a limit."""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_ISDIR

from ticklake.storage.names import parse_batch_name, visible

# The number of names that one search looks at. A link may lead to a whole disk.
MAX_NAMES = 100_000


class Search:
    """Looks for batch files in several places. The limit is for all of them together; no folder is searched twice."""

    def __init__(self, max_names: int | None = None) -> None:
        self._left = MAX_NAMES if max_names is None else max_names
        self._without: set[tuple[int, int]] = set()

    def may_hold_batches(self, path: str) -> bool:
        """Returns False only if there is no batch file in a place, also not behind links.

        A place that cannot be searched may hold some: no permission, a link to nothing, too many names.
        """
        seen: set[tuple[int, int]] = set()
        try:
            found = self._finds(path, seen)
        except OSError:
            return True
        if not found:
            self._without |= seen
        return found

    def _finds(self, path: str, seen: set[tuple[int, int]]) -> bool:
        waiting = [path]
        while waiting:
            at = waiting.pop()
            there = Path(at).stat()
            inode = (there.st_dev, there.st_ino)
            if not S_ISDIR(there.st_mode) or inode in seen or inode in self._without:
                continue
            seen.add(inode)
            with os.scandir(at) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0 or (parse_batch_name(entry.name) and not entry.is_dir(follow_symlinks=False)):
                        return True
                    if visible(entry.name) and (entry.is_symlink() or entry.is_dir()):
                        waiting.append(entry.path)
        return False
