"""Division of a large append into slices, so that a long catch-up does not block the loop.

The cost depends on the number of batches, not bytes, because the log parses each header. Between two slices the log
contains a part of the append, which is safe in a crash and is not visible to readers.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from broker.quorum.ready import Append
from protocol.ids import Offset
from protocol.records.batch import iter_headers

SMALL_BYTES: Final = 16 * 1024
"""Smaller appends are not divided; they contain at most a few hundred batches."""
SLICE_BATCHES: Final = 256
SLICE_BYTES: Final = 1024 * 1024


def sliced(append: Append) -> Iterator[Append]:
    """Yield the batches in order, in appends of a few milliseconds each."""
    if len(append.batches) <= SMALL_BYTES:
        yield append
        return
    view = memoryview(append.batches)
    start = count = 0
    for position, header in iter_headers(view):
        count += 1
        end = position + header.size
        if count >= SLICE_BATCHES or end - start >= SLICE_BYTES or end == len(view):
            yield replace(append, batches=view[start:end], end_offset=Offset(header.next_offset))
            start, count = end, 0
