"""The positions of the fields of many records at once (Apache Kafka's DefaultRecord).

The content of a record, after its length: attributes int8, timestamp delta varlong, offset delta varint, key and value,
each after its length as a varint, -1 for null, the count of headers as a varint, and the key and the value of each
header in the same way. All varints are zigzag.
"""

from typing import Final, NamedTuple

import numpy as np

from protocol.primitives import Buffer
from spark_jobs.metadata.byte_columns import Bools, Bytes, Ints
from spark_jobs.metadata.record_frames import LONG, VARINT_BYTES, VARLONG_BYTES, varints

_LEAST_HEADER: Final = 2
"""Bytes of the shortest header: two lengths."""
_LEAST_TOGETHER: Final = 48
"""The headers of fewer records are read faster one by one."""


class Spans(NamedTuple):
    """Byte strings in a pool, each with its start and length, -1 for null; starts ascend."""

    starts: Ints
    lengths: Ints

    @property
    def ends(self) -> Ints:
        return self.starts + np.maximum(self.lengths, 0)


class FieldPositions(NamedTuple):
    """The offset delta, the timestamp delta and the position of the key's length, for each record."""

    offset_deltas: Ints
    timestamp_deltas: Ints
    keys_at: Ints
    sound: Bools


class Fields(NamedTuple):
    """The fields of records. `headers` are those of all records in order; `counts` is the number of each record's
    headers. The fields of a record that is not `sound` are undefined.
    """

    keys: Spans
    values: Spans
    counts: Ints
    header_keys: Spans
    header_values: Spans
    sound: Bools


def places_of(pool: Bytes, contents: Ints) -> FieldPositions:
    """Return the positions for records whose contents begin at these positions."""
    times, size, sound = varints(pool, contents + 1, VARLONG_BYTES)
    at = contents + 1 + size
    offsets, size, is_whole = varints(pool, at, VARINT_BYTES)
    return FieldPositions(offsets, times, at + size, sound & is_whole)


def fields_of(pool: Bytes, keys_at: Ints, stops: Ints) -> Fields:
    """Return the fields of records whose key lengths lie at these positions, and that end at `stops`."""
    keys, sound = _spans(pool, keys_at)
    values, is_sound = _spans(pool, keys.ends)
    sound &= is_sound
    counts, size, is_whole = varints(pool, values.ends, VARINT_BYTES)
    at = values.ends + size
    sound &= is_whole & (counts >= 0) & (at + _LEAST_HEADER * counts <= stops)
    counts = np.where(sound, counts, 0)
    header_keys, header_values, ends = _headers(pool, at, stops, counts)
    return Fields(keys, values, counts, header_keys, header_values, sound & (ends == stops))


def _spans(pool: Bytes, at: Ints) -> tuple[Spans, Bools]:
    lengths, size, is_whole = varints(pool, at, VARINT_BYTES)
    return Spans(at + size, lengths), is_whole & (lengths >= -1)


def _headers(pool: Bytes, at: Ints, stops: Ints, counts: Ints) -> tuple[Spans, Spans, Ints]:
    """Return (keys, values, end of the last header of each record; beyond its stop for a malformed record)."""
    total = int(counts.sum())
    keys, values = (Spans(np.zeros(total, np.int64), np.zeros(total, np.int64)) for _ in range(2))
    if not total:
        return keys, values, at
    rows = np.flatnonzero(counts)
    order = rows[np.argsort(-counts[rows], kind="stable")]
    first, left, limits, here = (np.cumsum(counts) - counts)[order], counts[order], stops[order], at[order]
    active = np.searchsorted(-left, -np.arange(1, int(left[0]) + 1), side="right")
    together = int(np.searchsorted(-active, -_LEAST_TOGETHER, side="right"))
    for step, lanes in enumerate(active[:together].tolist()):
        key, sound = _spans(pool, here[:lanes])
        value, is_sound = _spans(pool, key.ends)
        sound &= is_sound & (key.lengths >= 0) & (value.ends <= limits[:lanes])
        slots = first[:lanes] + step
        keys.starts[slots], keys.lengths[slots] = key
        values.starts[slots], values.lengths[slots] = value
        here[:lanes] = np.where(sound, value.ends, limits[:lanes] + 1)
    for lane in range(int(active[together]) if together < len(active) else 0):
        slots = np.arange(first[lane] + together, first[lane] + left[lane])
        here[lane] = _headers_alone(pool, int(here[lane]), int(limits[lane]), slots, keys, values)
    ends = at.copy()
    ends[order] = here
    return keys, values, ends


def _headers_alone(pool: Bytes, at: int, limit: int, slots: Ints, keys: Spans, values: Spans) -> int:
    """Read the headers of one record into their slots; return the end of the last, beyond the limit for a malformed
    one.
    """
    data, begin = pool[at : max(at, limit)].tobytes(), at
    at = 0
    try:
        for slot in slots.tolist():
            for spans, least in ((keys, 0), (values, -1)):
                length, at = _varint(data, at)
                if length < least:
                    return limit + 1
                spans.starts[slot], spans.lengths[slot] = begin + at, length
                at += max(length, 0)
    except IndexError:
        return limit + 1
    return begin + at


def _varint(data: Buffer, at: int) -> tuple[int, int]:
    """Return (value, end position) of a zigzag varint. Raises IndexError for one that is cut short or too long."""
    value = 0
    for shift in range(VARINT_BYTES):
        byte = data[at + shift]
        value |= (byte & 0x7F) << (7 * shift)
        if byte < LONG:
            return (value >> 1) ^ -(value & 1), at + shift + 1
    raise IndexError
