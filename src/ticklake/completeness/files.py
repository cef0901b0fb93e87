"""The batch files of a run, the ticks that they promise, and files that arrive during the check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from ticklake.completeness.judging import Expected
from ticklake.completeness.verdicts import FilesVerdict
from ticklake.coordination import Batch, stored
from ticklake.errors import TickLakeError
from ticklake.lake.empty import Ticks
from ticklake.lake.errors import StorageUnavailable
from ticklake.lives import life_of
from ticklake.storage import BatchFile, Storage, format_of, stretches_of_run
from ticklake.ticks import Stretch, TickRange, joined_stretches, merged
from ticklake.world import World


class Files:
    """The batch files of a run, listed once. `by_key` has the ticks that the name of each file promises."""

    def __init__(self, run_id: str, storage: Storage, world: World, *, ended: bool = False) -> None:
        """With `ended`, a run without a recorded end is treated as ended with its last file."""
        self._run_id, self._storage, self._step = run_id, storage, world.sampling_interval
        # Read the end first: a listing after the recorded end has all files of the run.
        end = storage.read_completion(run_id)
        self.by_key = self.list_files()
        last = max((ticks.end for ticks in self.by_key.values()), default=None) if ended else None
        self._assumed = end is None and last is not None
        self._life = life_of(end)
        self._chunks = self._stretches()
        stretches = joined_stretches(one for chunks in self._chunks.values() for one in chunks)
        self.expected = Expected(
            self._step,
            list(self.by_key.values()),
            last if end is None else end.last_tick,
            self.present_ticks(()),
            never_written=list(self._life.never_written),
            stretches=stretches if {one.step for one in stretches} - {self._step} else [],
            first_tick=world.first_tick,
        )

    def _stretches(self) -> dict[str, list[Stretch]]:
        """Returns how often the chunks of each file were sampled; nothing if there are no chunks."""
        files = [BatchFile(self._run_id, key, ticks, 0) for key, ticks in self.by_key.items()]
        return stretches_of_run(self._storage, files, self._step)

    def list_files(self) -> dict[str, TickRange]:
        """Lists the storage again."""
        try:
            return stored(self._storage, self._run_id)
        except OSError as error:
            raise StorageUnavailable(storage=self._storage.url, reason=error) from error

    def new_ticks(self) -> list[TickRange]:
        """Returns the ticks of files that arrived after the first listing. Tables may already have them."""
        return merged((ticks for key, ticks in self.list_files().items() if key not in self.by_key), 1)

    def without_new_ticks(self, present: Ticks) -> Ticks:
        """Removes ticks after the last expected one that arrived during the check."""
        end = self.expected.ticks.end
        if self.expected.last_tick is not None or not (present > end).any():
            return present
        for ticks in self.new_ticks():
            present = present[(present <= end) | (present < ticks.start) | (present > ticks.end)]
        return present

    def present_ticks(self, incomplete: Sequence[Batch]) -> list[TickRange]:
        """Returns the ticks that chunks or file names promise, without the missing ticks of `incomplete` files.

        A chunk has all of its ticks, or its file cannot be read.
        """
        known = {f"{self._run_id}/{batch.name}": batch.present_ticks(self._step) for batch in incomplete}
        known |= {key: [TickRange(one.start, one.end) for one in chunks] for key, chunks in self._chunks.items()}
        return [part for key, ticks in self.by_key.items() for part in known.get(key, [ticks])]

    def verdict(self) -> FilesVerdict:
        end = self.expected.last_tick
        beyond = [key for key, ticks in self.by_key.items() if end is not None and ticks.end > end]
        named = {key: ticks for key, ticks in self.by_key.items() if key not in self._chunks}
        off = [key for key, ticks in named.items() if ticks.start % self._step or ticks.end % self._step]
        return FilesVerdict(
            files=len(self.by_key),
            ended=end is not None,
            last_tick=end,
            silent_since=self._silent_since(),
            overlapping=overlapping(sorted(self.by_key.values())),
            lost=self.expected.lost,
            misfits=[key for key in self.by_key if key in {*off, *beyond}],
            beyond=beyond,
            assumed=self._assumed,
            state=self._life.state,
            abandoned_by=self._life.cause,
            never_written=self.expected.excused,
            passed_over=self._storage.passed_over(self._run_id),
            format=_format(self._storage, min(self.by_key, key=lambda key: self.by_key[key], default=None)),
            stretches=self.expected.stretches,
        )

    def _silent_since(self) -> datetime | None:
        """Returns the time of the last change of the run's folders; None if it is unknown."""
        folders = {self._run_id, *(key.rpartition("/")[0] for key in self.by_key)}
        changed = max((self._storage.changed_at(folder) or 0 for folder in folders), default=0)
        return datetime.fromtimestamp(changed // 10**9, UTC) if changed else None


def _format(storage: Storage, key: str | None) -> str:
    """Returns the format of a file; empty if it cannot be read, which others report."""
    try:
        return format_of(storage, key) if key is not None else ""
    except (TickLakeError, OSError):
        return ""


def overlapping(ranges: Sequence[TickRange]) -> int:
    """Counts the ranges, which must be sorted, that overlap an earlier one."""
    return sum(later.start <= reach for later, reach in _reached(ranges))


def _reached(ranges: Sequence[TickRange]) -> Iterator[tuple[TickRange, int]]:
    """Yields each range with the last tick of all ranges before it."""
    reach = -1
    for ticks in ranges:
        yield ticks, reach
        reach = max(reach, ticks.end)
