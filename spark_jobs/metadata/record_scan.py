"""The values of the records of many batches at once.

Where records begin and end is found in all of them at a time (`record_frames.py`), so there must be some; afterwards
all records are read at once. Only records as metadata has them are taken (no key, no headers, one time for all of a
batch); a batch with any other record, or a damaged one, is left to the reader of the node.
"""

from typing import Final, NamedTuple

import numpy as np

from spark_jobs.metadata.byte_columns import Bools, Bytes, Ints
from spark_jobs.metadata.record_frames import LEAST_RECORD, LONG, frames_of, varints

MIN_LANES: Final = 24
"""With fewer, the node's compiled reader is faster."""
_NO_KEY: Final = 1


class Scan(NamedTuple):
    """The values, those of each batch behind one another as the batches are, and which batches were taken."""

    starts: Ints
    lengths: Ints
    taken: Bools


def scan(pool: Bytes, bodies: Ints, ends: Ints, counts: Ints) -> Scan:
    """The values of batches whose records lie in `pool` from `bodies` to `ends`; meaningless where not taken."""
    contents, stops, taken = frames_of(pool, bodies, ends, counts)
    deltas = np.arange(len(contents)) - np.repeat(np.cumsum(counts) - counts, counts)
    values, lengths, usual = _values(pool, contents, stops, deltas)
    bad = np.bincount(np.repeat(np.arange(len(counts)), counts)[~usual], minlength=len(counts)) > 0
    return Scan(values, lengths, taken & ~bad)


def _values(pool: Bytes, contents: Ints, stops: Ints, deltas: Ints) -> tuple[Ints, Ints, Bools]:
    """(starts, lengths, whether the record is as it should be)."""
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
