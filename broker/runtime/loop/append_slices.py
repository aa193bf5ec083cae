"""Divides what is to be appended, so that a long catch-up leaves the loop free in between.

What costs time is the number of batches, not of bytes: the log looks at each header. Between two slices the log is one
that was appended to in part, which no crash makes worse and which nobody is shown.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from broker.quorum.ready import Append
from protocol.records.batch import iter_headers

SMALL_BYTES: Final = 16 * 1024
"""Not worth a look: there cannot be more than a few hundred batches in it."""
SLICE_BATCHES: Final = 256
SLICE_BYTES: Final = 1024 * 1024


def sliced(append: Append) -> Iterator[Append]:
    """The same batches in order, in appends that take a few milliseconds at most, however small the batches are."""
    if len(append.batches) <= SMALL_BYTES:
        yield append
        return
    view = memoryview(append.batches)
    start = count = 0
    for position, header in iter_headers(view):
        count += 1
        end = position + header.size
        if count >= SLICE_BATCHES or end - start >= SLICE_BYTES or end == len(view):
            yield replace(append, batches=view[start:end], end_offset=header.next_offset)
            start, count = end, 0
