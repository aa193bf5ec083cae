"""The positions of the records of many batches, and the varints in records.

A batch is a lane: one step finds the next record of each lane, for which only its length must be read, so that the
lanes share the cost of a step. The last few, longer lanes are walked one by one. The content of records is opaque.
"""

from typing import Final, NamedTuple

import numpy as np

from spark_jobs.metadata.byte_columns import Bools, Bytes, Ints

LONG: Final = 0x80
"""A byte from this value on is not the last of its varint."""
LEAST_RECORD: Final = 6
"""Content of the shortest record: attributes, two deltas, the lengths of key and value, the count of headers."""
VARINT_BYTES: Final = 5
VARLONG_BYTES: Final = 10
LEAST_TOGETHER: Final = 80
"""Fewer lanes are walked faster one by one."""


class Frames(NamedTuple):
    """The start and end of the content of each record, in the order of batches, and a mask of the batches that ended
    correctly.

    The positions of other batches are undefined.
    """

    contents: Ints
    stops: Ints
    taken: Bools


def frames_of(
    pool: Bytes, bodies: Ints, ends: Ints, counts: Ints, *, least_together: int = 1, length_bytes: int = 3
) -> Frames:
    """Find the records of batches in `pool` from `bodies` to `ends`, which must be large enough for `counts` records.

    Fewer lanes than `least_together` are walked one by one. Lengths have at most `length_bytes`.
    """
    total = int(counts.sum())
    contents, stops = np.zeros(total, np.int64), np.zeros(total, np.int64)
    firsts = np.cumsum(counts) - counts
    order = np.argsort(-counts, kind="stable")
    at, limits, first, left = bodies[order], ends[order], firsts[order], counts[order]
    beyond = limits + 1  # a lane that passes its limit stays there
    steps = int(left[0]) if len(left) else 0
    active = np.searchsorted(-left, -np.arange(1, steps + 1), side="right")
    together = int(np.searchsorted(-active, -least_together, side="right"))
    for step, lanes in enumerate(active[:together].tolist()):
        here = at[:lanes]
        length, size, is_whole = varints(pool, here, length_bytes)
        content = here + size
        stop = content + length
        astray = (stop > limits[:lanes]) | (length < LEAST_RECORD) | ~is_whole
        contents[first[:lanes] + step] = content
        stops[first[:lanes] + step] = stop
        at[:lanes] = np.where(astray, beyond[:lanes], stop)
    for lane in range(int(active[together]) if together < steps else 0):
        rest = slice(int(first[lane]) + together, int(first[lane]) + int(left[lane]))
        at[lane] = _walk_alone(pool, int(at[lane]), int(limits[lane]), contents[rest], stops[rest])
    taken = np.empty(len(counts), np.bool_)
    taken[order] = (at == limits) & (left > 0)
    return Frames(contents, stops, taken)


def _walk_alone(pool: Bytes, start: int, limit: int, contents: Ints, stops: Ints) -> int:
    """Find the records of one batch from `start` on; return the end of the last, or -1 for a malformed record."""
    found = _stops(pool[start:limit].tobytes(), len(stops))
    if len(found) < len(stops):
        return -1
    stops[:] = found
    stops += start
    starts = np.concatenate(([start], stops[:-1]))
    length, size, is_whole = varints(pool, starts, VARINT_BYTES)
    contents[:] = starts + size
    is_sound = is_whole & (length >= LEAST_RECORD) & (contents + length == stops)
    return int(stops[-1]) if is_sound.all() else -1


def _stops(data: bytes, count: int) -> list[int]:
    """Return the ends of records that begin at 0, possibly fewer than `count`.

    Negative lengths give undefined results: there is time for one byte and one shift per record only.
    """
    stops: list[int] = []
    append, at = stops.append, 0
    try:
        for _ in range(count):
            byte = data[at]
            if byte < LONG:
                at += (byte >> 1) + 1
            elif (second := data[at + 1]) < LONG:
                at += (((second << 7) | (byte & 0x7F)) >> 1) + 2
            else:
                at += _long_step(data, at)
            append(at)
    except IndexError:
        return stops
    return stops


def _long_step(data: bytes, at: int) -> int:
    """Return the size of a record with a length of three bytes or more, and of that length. Raises IndexError."""
    value = size = 0
    while size < VARINT_BYTES:
        byte = data[at + size]
        value |= (byte & 0x7F) << (7 * size)
        size += 1
        if byte < LONG:
            break
    return (value >> 1) + size


def varints(pool: Bytes, at: Ints, most: int = 3) -> tuple[Ints, Ints, Bools]:
    """Return (values, sizes, whether each size is at most `most`) of zigzag varints at these positions."""
    byte = pool.take(at, mode="clip").astype(np.int64)
    value, size = byte & 0x7F, np.ones(len(at), np.int64)
    for shift in range(1, most):
        longer = np.flatnonzero(byte >= LONG)
        if not len(longer):
            break
        following = pool.take(at[longer] + shift, mode="clip").astype(np.int64)
        value[longer] |= (following & 0x7F) << (7 * shift)
        size[longer] += 1
        byte[longer] = following
    half = value >> 1 if most < VARLONG_BYTES else _unsigned_shift(value)
    return half ^ -(value & 1), size, byte < LONG


def _unsigned_shift(value: Ints) -> Ints:
    """Shift by one bit numbers that may use all 64 bits."""
    shifted: Ints = (value.view(np.uint64) >> np.uint64(1)).view(np.int64)
    return shifted
