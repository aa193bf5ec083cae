"""A section's state as record batches, byte by byte as the node's `topic_frames` and `data_batch` write them.

The positions of all records of a section are computed first. Then each part is written for all records at once: the
framing of records in a batch, the frames of partitions by shape (numbers of replicas, in-sync, adding and removing
replicas), and those of topics by length of name. The node's code encodes the few frames of other forms one by one.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.partition import LeaderRecoveryState, PartitionRegistration
from broker.metadata.image.records import FRAME_VERSION, encode_record
from broker.metadata.snapshot.codec import FRAME_BYTES_PER_BATCH, RECORDS_PER_BATCH
from protocol.ids import BrokerId, LeaderEpoch
from protocol.messages.metadata_records import TopicRecord
from protocol.primitives import Uuid
from protocol.records.batch import (
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    pack_batch,
    write_crc,
)
from protocol.records.compression import Codec, compress
from spark_jobs.metadata.byte_columns import Bools, Bytes, Ints, Strings, items, numbers, put_bytes, strings_of
from spark_jobs.metadata.partition_columns import PARTITION
from spark_jobs.metadata.section_state import NUMBERS, TOPIC_ROW
from spark_jobs.metadata.state_columns import StateColumns

_MAX_COUNT: Final = 126
"""Largest number of array elements with a count of one byte."""
_ID_LISTS: Final = ("replicas", "isr", "removing_replicas", "adding_replicas")
_FIXED_BYTES: Final = 3 + 4 + 16 + 4 + 12 + 1
"""Size of the fixed part of a partition frame: head, index, topic id, counts of four lists, leader and epochs, no
tagged fields.
"""
_ID_SIZE: Final = 16
_TOPIC_BYTES: Final = 3 + 1 + _ID_SIZE + 1
"""Size of a topic's frame without the name: head, length of the name, id, no tagged fields."""
_RECORD_BYTES: Final = 4
"""Size of a record's fields beside lengths and offset delta: attributes, timestamp delta, no key, no headers."""


class BatchFacts(NamedTuple):
    """The common properties of batches."""

    epoch: LeaderEpoch
    timestamp_ms: int
    codec: Codec


def section_batches(state: pa.Table, version: MetadataVersion, facts: BatchFacts) -> bytes:
    """Return whole batches with base offsets from 0."""
    if not len(state):
        return b""
    frames = _Frames(state.combine_chunks(), version)
    layout = _Layout(frames.lengths)
    frames.put(layout.out, layout.frames)
    return layout.batches(facts)


class _Frames:
    """The frames of a section's rows: first their lengths, then their bytes at given positions."""

    def __init__(self, state: pa.Table, version: MetadataVersion) -> None:
        self._version = version.partition_record_version
        self._metadata_version = version
        self._partitions = numbers(state.column("partition"))
        self._ids = strings_of(state.column("topic_id"))
        self._columns = StateColumns.of(state)
        self._counts = {name: self._columns.lengths[name] // 4 for name in _ID_LISTS}
        self._names = strings_of(state.column("name"))
        self._is_topic = self._partitions == TOPIC_ROW
        self._others = self._rows_of_other_forms()
        self.lengths = _FIXED_BYTES + 4 * sum(self._counts.values(), np.zeros(len(self._partitions), np.int64))
        if self._version >= 1:
            self.lengths += 1 + _ID_SIZE * self._counts["replicas"]
        self.lengths = np.where(self._is_topic, _TOPIC_BYTES + self._names.lengths, self.lengths)
        self._usual = ~self._is_topic
        self._usual[self._others.rows] = False
        self.lengths[self._others.rows] = self._others.frames.lengths

    def put(self, out: Bytes, places: Ints) -> None:
        """Write all frames to their positions."""
        rows, others = self._others.rows, self._others.frames
        put_bytes(out, places[rows], *others)
        usual = np.flatnonzero(self._usual)
        for mine in _alike(usual, self._shapes()[usual]):
            self._put_shape(out, places, mine)
        short = np.flatnonzero(self._is_topic & (self._names.lengths <= _MAX_COUNT))
        for mine in _alike(short, self._names.lengths[short]):
            self._put_topics(out, places, mine)

    def _shapes(self) -> Ints:
        shapes = np.zeros(len(self._partitions), np.int64)
        for name in _ID_LISTS:
            shapes = shapes * (_MAX_COUNT + 1) + np.minimum(self._counts[name], _MAX_COUNT)
        return shapes

    def _put_topics(self, out: Bytes, places: Ints, rows: Ints) -> None:
        """Write the frames of topics whose names have the same length."""
        size, name_size = int(self.lengths[rows[0]]), int(self._names.lengths[rows[0]])
        block = np.zeros((len(rows), size), np.uint8)
        block[:, :4] = (FRAME_VERSION, TopicRecord.API_KEY, 0, name_size + 1)
        if name_size:
            names = items(self._names.pool, name_size)[self._names.starts[rows]]
            block[:, 4 : 4 + name_size] = names.view(np.uint8).reshape(len(rows), -1)
        block[:, 4 + name_size : -1] = self._raw_ids(rows)
        items(out, size)[places[rows]] = block.reshape(-1).view(f"V{size}")

    def _raw_ids(self, rows: Ints) -> Bytes:
        raw = items(self._ids.pool, _ID_SIZE)[self._ids.starts[rows]]
        return raw.view(np.uint8).reshape(-1, _ID_SIZE)

    def _put_shape(self, out: Bytes, places: Ints, rows: Ints) -> None:
        """Write the frames of partitions with the same number of elements in each list."""
        size, columns = int(self.lengths[rows[0]]), self._columns
        block = np.zeros((len(rows), size), np.uint8)
        block[:, :3] = (FRAME_VERSION, PARTITION, self._version)
        block[:, 3:7] = _big_endian(self._partitions[rows])
        block[:, 7:23] = self._raw_ids(rows)
        at = 23
        for name in _ID_LISTS:
            at = self._put_list(block, at, name, rows, int(self._counts[name][rows[0]]), 4)
        for name in ("leader", "leader_epoch", "partition_epoch"):
            block[:, at : at + 4] = _big_endian(columns.numbers[name][rows])
            at += 4
        if self._version >= 1:
            self._put_directories(block, at, rows, int(self._counts["replicas"][rows[0]]))
        items(out, size)[places[rows]] = block.reshape(-1).view(f"V{size}")

    def _put_list(self, block: Bytes, at: int, name: str, rows: Ints, count: int, width: int) -> int:
        block[:, at] = count + 1
        if count:
            data = items(self._columns.pool, count * width)[self._columns.starts[name][rows]]
            block[:, at + 1 : at + 1 + count * width] = data.view(np.uint8).reshape(len(rows), -1)
        return at + 1 + count * width

    def _put_directories(self, block: Bytes, at: int, rows: Ints, count: int) -> None:
        """Write one directory id per replica, the zero id if none were recorded."""
        recorded = self._columns.lengths["directories"][rows] > 0
        if recorded.all():
            self._put_list(block, at, "directories", rows, count, _ID_SIZE)
            return
        block[:, at] = count + 1
        if not recorded.any():
            return
        mine = np.ascontiguousarray(block[recorded])
        self._put_list(mine, at, "directories", rows[recorded], count, _ID_SIZE)
        block[recorded] = mine

    def _rows_of_other_forms(self) -> "_Others":
        """Return topics with long names and partitions of other forms, encoded by the node's code."""
        rows = np.flatnonzero(np.where(self._is_topic, self._names.lengths > _MAX_COUNT, self._is_odd()))
        frames = [self._topic(row) if self._is_topic[row] else self._partition(row) for row in rows.tolist()]
        lengths = np.fromiter(map(len, frames), np.int64, len(frames))
        pool = np.frombuffer(b"".join(frames), np.uint8)
        return _Others(rows, Strings(pool, np.cumsum(lengths) - lengths, lengths))

    def _is_odd(self) -> Bools:
        columns = self._columns
        odd: Bools = columns.numbers["leader_recovery_state"] != LeaderRecoveryState.RECOVERED
        for name in _ID_LISTS:
            odd |= self._counts[name] > _MAX_COUNT
        if self._version >= 1:
            directories = columns.lengths["directories"] // _ID_SIZE
            odd |= (directories != self._counts["replicas"]) & (directories > 0)
        if self._version >= 2:
            odd |= (columns.lengths["elr"] > 0) | (columns.lengths["last_known_elr"] > 0)
        return odd

    def _topic(self, row: int) -> bytes:
        return encode_record(TopicRecord(name=self._names.value(row).decode(), topic_id=Uuid(self._ids.value(row))), 0)

    def _partition(self, row: int) -> bytes:
        record = self._registration(row).to_record(
            Uuid(self._ids.value(row)), int(self._partitions[row]), self._metadata_version
        )
        return encode_record(*record)

    def _registration(self, row: int) -> PartitionRegistration:
        columns = self._columns
        leader, leader_epoch, partition_epoch, recovery = (int(columns.numbers[name][row]) for name in NUMBERS)
        directories = columns.list_value("directories", row)
        return PartitionRegistration(
            replicas=self._id_list("replicas", row),
            isr=self._id_list("isr", row),
            leader=BrokerId(leader),
            leader_epoch=LeaderEpoch(leader_epoch),
            partition_epoch=partition_epoch,
            directories=tuple(Uuid(directories[at : at + _ID_SIZE]) for at in range(0, len(directories), _ID_SIZE)),
            removing_replicas=self._id_list("removing_replicas", row),
            adding_replicas=self._id_list("adding_replicas", row),
            elr=self._id_list("elr", row),
            last_known_elr=self._id_list("last_known_elr", row),
            leader_recovery_state=LeaderRecoveryState(recovery),
        )

    def _id_list(self, name: str, row: int) -> tuple[int, ...]:
        return tuple(np.frombuffer(self._columns.list_value(name, row), ">i4").tolist())


def _alike(rows: Ints, kinds: Ints) -> list[Ints]:
    """Group rows by kind."""
    return [rows[kinds == kind] for kind in np.unique(kinds).tolist()]


class _Others(NamedTuple):
    rows: Ints
    frames: Strings


class _Layout:
    """The positions of batches, records and frames in `out`, which holds everything except the frames."""

    def __init__(self, lengths: Ints) -> None:
        self._firsts = _batch_starts(lengths)
        self._counts = np.diff(self._firsts, append=len(lengths))
        batch = np.repeat(np.arange(len(self._firsts)), self._counts)
        deltas = np.arange(len(lengths)) - self._firsts[batch]
        delta_sizes, length_sizes = _varint_sizes(deltas), _varint_sizes(lengths)
        contents = _RECORD_BYTES + delta_sizes + length_sizes + lengths
        sizes = _varint_sizes(contents)
        ends = np.cumsum(sizes + contents) + HEADER_SIZE * (batch + 1)
        starts = ends - sizes - contents
        self.out = np.zeros(int(ends[-1]), np.uint8)
        self.frames = ends - 1 - lengths
        self._starts = starts[self._firsts] - HEADER_SIZE
        _put_varints(self.out, starts, contents, sizes)
        at = starts + sizes + 2  # attributes and timestamp delta are zero
        _put_varints(self.out, at, deltas, delta_sizes)
        at += delta_sizes
        self.out[at] = 1  # the length of an absent key
        _put_varints(self.out, at + 1, lengths, length_sizes)

    def batches(self, facts: BatchFacts) -> bytes:
        """Return the batches with their headers."""
        ends = np.append(self._starts, len(self.out))[1:].tolist()
        view = self.out.data
        whole = []
        for start, end, first, count in zip(
            self._starts.tolist(), ends, self._firsts.tolist(), self._counts.tolist(), strict=True
        ):
            header = _header(facts, first, count, end - start)
            if facts.codec is not Codec.NONE:
                whole.append(pack_batch(header, compress(facts.codec, view[start + HEADER_SIZE : end])))
                continue
            HEADER.pack_into(view, start, *header)
            write_crc(view[start:end], 0, end - start)
        return b"".join(whole) if facts.codec is not Codec.NONE else self.out.tobytes()


def _header(facts: BatchFacts, first: int, count: int, size: int) -> BatchHeader:
    return BatchHeader(
        base_offset=first,
        batch_length=size - LENGTH_PREFIX_SIZE,
        leader_epoch=facts.epoch,
        magic=MAGIC,
        crc=0,
        attributes=facts.codec,
        last_offset_delta=count - 1,
        base_timestamp=facts.timestamp_ms,
        max_timestamp=facts.timestamp_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=count,
    )


def _batch_starts(lengths: Ints) -> Ints:
    """Return the first record of each batch: batches have limits in records and in bytes."""
    ends = np.cumsum(lengths)
    starts, first = [], 0
    while first < len(lengths):
        starts.append(first)
        before = ends[first] - lengths[first]
        by_size = int(np.searchsorted(ends, before + FRAME_BYTES_PER_BATCH, side="right"))
        first = min(first + RECORDS_PER_BATCH, max(first + 1, by_size))
    return np.array(starts, np.int64)


def _varint_sizes(values: Ints) -> Ints:
    """Return the sizes of the zigzag varints of values from 0 to 2**31 - 1."""
    sizes = np.ones(len(values), np.int64)
    for bits in (6, 13, 20, 27):
        sizes += values >= 1 << bits
    return sizes


def _put_varints(out: Bytes, places: Ints, values: Ints, sizes: Ints) -> None:
    """Write zigzag varints of non-negative values."""
    rest = values << 1
    for byte in range(int(sizes.max(initial=0))):
        rows = slice(None) if byte == 0 else np.flatnonzero(sizes > byte)
        more = np.where(sizes[rows] > byte + 1, 0x80, 0)
        out[places[rows] + byte] = (rest[rows] >> (7 * byte)) & 0x7F | more


def _big_endian(values: Ints) -> Bytes:
    return values.astype(">i4").view(np.uint8).reshape(-1, 4)
