"""Record batches of the metadata log as rows: one for each data or control record.

Owns the schema of the rows and the conversion. Of a record's content it reads only the topic id, which determines the
section.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from broker.metadata.snapshot.codec import TOPIC_BUCKET_BITS
from protocol.messages.metadata_records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.primitives import Buffer
from protocol.records.batch import iter_headers
from protocol.records.errors import MalformedBatch
from spark_jobs.metadata.batch_values import CONTROL_HEAD, LogBatch, batch_values
from spark_jobs.metadata.byte_columns import Bools, Ints, Strings, binary_array, booleans, items, numbers, strings_of
from spark_jobs.metadata.frame_heads import MalformedLog, UnknownRecord, frame_heads, known

__all__ = ["MalformedLog", "UnknownRecord"]

FROM_LOG: Final = 0
FROM_SNAPSHOT: Final = 1
TOPIC_SECTIONS: Final = 1 << TOPIC_BUCKET_BITS
REGISTRY: Final = TOPIC_SECTIONS
"""The section of everything except topics and partitions, and of the names of topics."""
ALL_SECTIONS: Final = tuple(range(TOPIC_SECTIONS + 1))
NO_SECTION: Final = -1

LOG_ROWS: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("batch_end", pa.int64(), nullable=False),
        pa.field("is_control", pa.bool_(), nullable=False),
        pa.field("key", pa.int16(), nullable=False),
        pa.field("version", pa.int16(), nullable=False),
        pa.field("section", pa.int16(), nullable=False),
        pa.field("frame", pa.binary(), nullable=False),
        pa.field("origin", pa.int8(), nullable=False),
    ]
)
"""`epoch` and `timestamp_ms` (the maximum) belong to the batch; `batch_end` is the offset after it. A data record has
its own `key` and `version`, and its whole value as `frame`. A control record has its control type as `key`, the version
of its key as `version`, and its value as `frame`. `section`: 0 to 31 if the record names one topic id, else -1.
`origin`: 0 for the log; 1 for a snapshot, all of whose rows have the offset of the last record before its end.
"""

_TOPIC_ID_SIZE: Final = 16
_ID_BEHIND_INDEX: Final = (PartitionRecord.API_KEY, PartitionChangeRecord.API_KEY)


def rows_of(data: Buffer, *, start: int, end: int, origin: int = FROM_LOG) -> pa.RecordBatch:
    """Return the records of whole batches, magic 2, compressed or not, as LOG_ROWS with start <= offset < end.

    An incomplete batch at the end of `data` is ignored, because fetch responses contain them; batches outside the
    bounds are not parsed. With `origin` FROM_SNAPSHOT, `data` is a part of a snapshot that ends at `end`: all its rows
    are returned, at offset `end` - 1, and `start` is ignored.

    Raises MalformedLog for bytes that are no batches, a wrong CRC, a gap between offsets, and frames without a head;
    UnknownRecord for a key or version beyond int16.
    """
    batches = [each for each in _batches(data) if origin == FROM_SNAPSHOT or each.overlaps(start, end)]
    rows = _rows(data, batches)
    if origin == FROM_SNAPSHOT:
        return _set(_set(_set(rows, "offset", end - 1), "batch_end", end), "origin", origin)
    if batches and (batches[0].header.base_offset < start or batches[-1].header.next_offset > end):
        offsets = numbers(rows.column("offset"))
        return rows.filter(pa.array((offsets >= start) & (offsets < end)))
    return rows


def section_rows(rows: pa.Table, section: int) -> pa.Table:
    """Return the rows that concern a section: the input of `fold_section` or, for REGISTRY, `fold_registry`."""
    sections, keys = numbers(rows.column("section")), numbers(rows.column("key"))
    if section == REGISTRY:
        mine = (sections == NO_SECTION) | (keys == TopicRecord.API_KEY) | (keys == RemoveTopicRecord.API_KEY)
    else:
        mine = (sections == section) | (keys == ClearElrRecord.API_KEY)
    mine &= ~booleans(rows.column("is_control"))
    return rows if mine.all() else rows.filter(pa.array(mine))


def split_by_section(rows: pa.Table, sections: Iterable[int]) -> Iterator[tuple[int, pa.Table]]:
    """Yield (section, rows that concern it) like `section_rows`, for many sections at once.

    Rows of one section keep their order, except that ClearElrRecords come last.
    """
    keys, numbered = numbers(rows.column("key")), numbers(rows.column("section"))
    numbered[booleans(rows.column("is_control"))] = NO_SECTION
    order = np.argsort(numbered.astype(np.int16), kind="stable")
    ordered = rows.take(pa.array(order))
    bounds = np.searchsorted(numbered[order], np.arange(TOPIC_SECTIONS + 1))
    everywhere = rows.filter(pa.array(keys == ClearElrRecord.API_KEY))
    for section in sections:
        if section == REGISTRY:
            yield section, section_rows(rows, section)
            continue
        mine = ordered.slice(bounds[section], bounds[section + 1] - bounds[section])
        yield section, pa.concat_tables([mine, everywhere]) if len(everywhere) else mine


def _batches(data: Buffer) -> Iterator[LogBatch]:
    expected = None
    try:
        for position, header in iter_headers(data):
            if expected is not None and header.base_offset != expected:
                raise MalformedLog(f"a batch begins at offset {header.base_offset} instead of {expected}")
            expected = header.next_offset
            yield LogBatch(data, position, header)
    except MalformedBatch as error:
        raise MalformedLog(str(error)) from error


def _rows(data: Buffer, batches: Sequence[LogBatch]) -> pa.RecordBatch:
    values = batch_values(data, batches)
    counts = np.array([each.record_count for each in batches], np.int64)
    bases = np.array([each.header.base_offset for each in batches], np.int64)
    firsts = np.cumsum(counts) - counts
    offsets = np.arange(len(values.starts), dtype=np.int64) + np.repeat(bases - firsts, counts)
    control = np.repeat(np.array([each.header.is_control for each in batches], np.bool_), counts)
    frames, keys, versions, sections = _heads(values, control, offsets)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(offsets),
            pa.array(np.repeat(np.array([each.header.leader_epoch for each in batches], np.int32), counts)),
            pa.array(np.repeat(np.array([each.header.max_timestamp for each in batches], np.int64), counts)),
            pa.array(np.repeat(bases + counts, counts)),
            pa.array(control),
            pa.array(keys.astype(np.int16)),
            pa.array(versions.astype(np.int16)),
            pa.array(sections.astype(np.int16)),
            frames,
            pa.array(np.zeros(len(offsets), np.int8)),
        ],
        schema=LOG_ROWS,
    )


def _heads(values: Strings, control: Bools, offsets: Ints) -> tuple[pa.Array, Ints, Ints, Ints]:
    """Return (frames, keys, versions, sections)."""
    sections = np.full(len(offsets), NO_SECTION, np.int64)
    keys, versions = np.zeros_like(sections), np.zeros_like(sections)
    frames = values
    if control.any():
        rows = np.flatnonzero(control)
        places = values.starts[rows]
        keys[rows] = items(values.pool, 2)[places + 2].view(">i2")
        versions[rows] = items(values.pool, 2)[places].view(">i2")
        head = np.where(control, CONTROL_HEAD, 0)
        frames = Strings(values.pool, values.starts + head, values.lengths - head)
    rows = np.flatnonzero(~control)
    data = frames.take(rows)
    keys[rows], versions[rows], bodies = frame_heads(data, offsets[rows])
    sections[rows] = _sections(data, keys[rows], versions[rows], bodies, offsets[rows])
    array = frames.array() if control.any() else binary_array(values.pool, values.lengths)
    return array, keys, versions, sections


def _sections(frames: Strings, keys: Ints, versions: Ints, bodies: Ints, offsets: Ints) -> Ints:
    """Return the sections by the first byte of the topic id, which follows a partition's index or a topic's name."""
    ids = bodies.copy()
    ids[np.isin(keys, _ID_BEHIND_INDEX)] += 4
    names = np.flatnonzero(keys == TopicRecord.API_KEY)
    ids[names] += _string_sizes(frames, bodies, names)
    has_id = known(keys, versions) & np.isin(keys, (*_ID_BEHIND_INDEX, TopicRecord.API_KEY, RemoveTopicRecord.API_KEY))
    short = np.flatnonzero(has_id & (ids + _TOPIC_ID_SIZE > frames.starts + frames.lengths))
    if len(short):
        raise MalformedLog(f"the record at offset {offsets[short[0]]} is cut short")
    sections = np.full(len(keys), NO_SECTION, np.int64)
    sections[has_id] = frames.pool[ids[has_id]] >> (8 - TOPIC_BUCKET_BITS)
    return sections


def _string_sizes(frames: Strings, bodies: Ints, rows: Ints) -> Ints:
    """Return the sizes of the compact strings at the start of bodies, with the length prefix of one or two bytes.

    The size of a truncated string is undefined, and too large for its frame.
    """
    last = len(frames.pool) - 1
    first = frames.pool[np.minimum(bodies[rows], last)].astype(np.int64)
    second = frames.pool[np.minimum(bodies[rows] + 1, last)].astype(np.int64)
    return np.where(first < 0x80, first, (first & 0x7F) + (second << 7) + 1)


def _set(rows: pa.RecordBatch, name: str, value: int) -> pa.RecordBatch:
    index = LOG_ROWS.get_field_index(name)
    field = LOG_ROWS.field(index)
    return rows.set_column(index, field, pa.array(np.full(len(rows), value, field.type.to_pandas_dtype())))


def frames_of(rows: pa.Table) -> Strings:
    """Return the frames of rows without copying."""
    return strings_of(rows.column("frame"))
