"""Says which format a batch file has."""

from __future__ import annotations

from contextlib import suppress

from ticklake.errors import TickLakeError
from ticklake.storage.delimited import BLOCK_BYTES
from ticklake.storage.eras.detection import Era, UnknownShape, era_of_file, eras_left
from ticklake.storage.files import Storage
from ticklake.storage.names import check_key

_HEAD_BYTES = 1 << 16


def format_of(storage: Storage, key: str) -> str:
    """Returns the format of a batch file: `TickLake`, or the era of the original. Reads the whole file only if it must.

    Raises `BadBatchFile` if it has none that is known.
    """
    with storage.open(key) as stream:
        return era_of_file(key, stream.read(_HEAD_BYTES), lambda: storage.open(key)).value


def format_at_a_glance(storage: Storage, key: str) -> str:
    """Returns the format of a batch file from its first megabyte, which is enough for most files.

    Otherwise returns all formats that are left, such as `E, F or G`. Raises `BadBatchFile` if there are none.
    """
    with storage.open(key) as stream:
        head = stream.read(BLOCK_BYTES + 1)
    try:
        left = eras_left(head, whole=len(head) <= BLOCK_BYTES)
    except UnknownShape as error:
        raise error.in_file(key) from error
    if Era.OWN in left and len(left) > 1:
        # The version is at the end of a tick, which is longer than the head. The metadata has one too.
        with suppress(TickLakeError, OSError):
            left = [Era.OWN] if storage.read_metadata(check_key(key)[0]).format_version else left[1:]
    return " or ".join(filter(None, [", ".join(left[:-1]), left[-1]]))


def is_chunked(format_: str) -> bool:
    """Returns whether files of a format have chunks, each with its own sampling interval."""
    return format_ in [era.value for era in Era if era.has_chunks]
