"""The values of the records of many batches at once.

A batch is a lane: in one step, the record that is next in each lane is found, for which only its length must be read;
afterwards all records are read at once. So the cost of a step is shared by the batches, and there must be some. Only
records as metadata has them are taken (no key, no headers, one time for all of a batch); a batch with any other record,
or a damaged one, is left to the reader of the node.
"""

from typing import Final, NamedTuple

import numpy as np

from spark_jobs.metadata.byte_columns import Bools, Bytes, Ints

MIN_LANES: Final = 24
"""With fewer, the node's compiled reader is faster."""
_LONG: Final = 0x80
_LEAST_RECORD: Final = 6
"""Attributes, two deltas, the lengths of key and value, the count of headers."""
_NO_KEY: Final = 1


class Scan(NamedTuple):
    """The values, those of each batch behind one another as the batches are, and which batches were taken."""

    starts: Ints
    lengths: Ints
    taken: Bools


def scan(pool: Bytes, bodies: Ints, ends: Ints, counts: Ints) -> Scan:
    """The values of batches whose records lie in `pool` from `bodies` to `ends`; meaningless where not taken."""
    firsts = np.cumsum(counts) - counts
    total = int(counts.sum())
    contents, stops = np.zeros(total, np.int64), np.zeros(total, np.int64)
    taken = _walk(pool, bodies, ends, counts, firsts, contents, stops)
    deltas = np.arange(total) - np.repeat(firsts, counts)
    values, lengths, usual = _values(pool, contents, stops, deltas)
    bad = np.bincount(np.repeat(np.arange(len(counts)), counts)[~usual], minlength=len(counts)) > 0
    return Scan(values, lengths, taken & ~bad)


def _walk(pool: Bytes, bodies: Ints, ends: Ints, counts: Ints, firsts: Ints, contents: Ints, stops: Ints) -> Bools:
    """Find where the content of each record begins and ends. Returns the lanes that came out at their ends."""
    order = np.argsort(-counts, kind="stable")
    at, limits, first, left = bodies[order], ends[order], firsts[order], counts[order]
    steps = int(left[0]) if len(left) else 0
    active = np.searchsorted(-left, -np.arange(1, steps + 1), side="right").tolist()
    for step, lanes in enumerate(active):
        here = at[:lanes]
        length, size, _ = _varints(pool, here)
        content = here + size
        stop = content + length
        astray = (stop > limits[:lanes]) | (length < _LEAST_RECORD)
        contents[first[:lanes] + step] = content
        stops[first[:lanes] + step] = stop
        at[:lanes] = np.where(astray, bodies[order[:lanes]], stop)
    taken = np.empty(len(counts), np.bool_)
    taken[order] = (at == limits) & (counts[order] > 0)
    return taken


def _values(pool: Bytes, contents: Ints, stops: Ints, deltas: Ints) -> tuple[Ints, Ints, Bools]:
    """(starts, lengths, whether the record is as it should be)."""
    last = len(pool) - 1
    is_usual = (stops - contents >= _LEAST_RECORD) & (stops <= last + 1)
    is_usual &= pool[np.minimum(contents + 1, last)] < _LONG
    delta, size, is_short = _varints(pool, contents + 2)
    at = contents + 2 + size
    is_usual &= is_short & (delta == deltas) & (pool[np.minimum(at, last)] == _NO_KEY)
    length, size, is_short = _varints(pool, at + 1)
    start = at + 1 + size
    is_usual &= is_short & (length >= 0) & (start + length + 1 == stops)
    is_usual &= pool[np.clip(stops - 1, 0, last)] == 0
    return start, length, is_usual


def _varints(pool: Bytes, at: Ints) -> tuple[Ints, Ints, Bools]:
    """(values, bytes, whether there are no more than three) of zigzag varints."""
    last = len(pool) - 1
    byte = pool[np.minimum(at, last)].astype(np.int64)
    value, size = byte & 0x7F, np.ones(len(at), np.int64)
    for shift in (1, 2):
        longer = np.flatnonzero(byte >= _LONG)
        if not len(longer):
            break
        following = pool[np.minimum(at[longer] + shift, last)].astype(np.int64)
        value[longer] |= (following & 0x7F) << (7 * shift)
        size[longer] += 1
        byte[longer] = following
    return (value >> 1) ^ -(value & 1), size, byte < _LONG
