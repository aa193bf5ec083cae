"""The values of the records of many batches at once.

The bounds of records are found in all batches at a time (`record_frames.py`), which needs several batches; then all
records are read at once. Only records in the form of metadata are scanned (no key, no headers, one timestamp per
batch); the node's reader reads any other or damaged batch.
"""

from typing import Final, NamedTuple

import numpy as np

from spark_jobs.metadata.byte_columns import Bools, Bytes, Ints
from spark_jobs.metadata.record_frames import LEAST_RECORD, LONG, frames_of, varints

MIN_LANES: Final = 24
"""With fewer batches the node's compiled reader is faster."""
_NO_KEY: Final = 1


class Scan(NamedTuple):
    """The values in the order of the batches, and a mask of the scanned batches."""

    starts: Ints
    lengths: Ints
    taken: Bools


def scan(pool: Bytes, bodies: Ints, ends: Ints, counts: Ints) -> Scan:
    """Scan batches whose records lie in `pool` from `bodies` to `ends`; values of rejected batches are undefined."""
    contents, stops, taken = frames_of(pool, bodies, ends, counts)
    deltas = np.arange(len(contents)) - np.repeat(np.cumsum(counts) - counts, counts)
    values, lengths, usual = _values(pool, contents, stops, deltas)
    bad = np.bincount(np.repeat(np.arange(len(counts)), counts)[~usual], minlength=len(counts)) > 0
    return Scan(values, lengths, taken & ~bad)


def _values(pool: Bytes, contents: Ints, stops: Ints, deltas: Ints) -> tuple[Ints, Ints, Bools]:
    """Return (starts, lengths, whether each record has the expected form)."""
    last = len(pool) - 1
    is_usual = (stops - contents >= LEAST_RECORD) & (stops <= last + 1)
    is_usual &= pool[np.minimum(contents + 1, last)] < LONG
    delta, size, is_short = varints(pool, contents + 2)
    at = contents + 2 + size
    is_usual &= is_short & (delta == deltas) & (pool[np.minimum(at, last)] == _NO_KEY)
    length, size, is_short = varints(pool, at + 1)
    start = at + 1 + size
    is_usual &= is_short & (length >= 0) & (start + length + 1 == stops)
    is_usual &= pool[np.clip(stops - 1, 0, last)] == 0
    return start, length, is_usual
