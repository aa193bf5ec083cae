"""Snapshot file of a metadata partition up to some offset; a restart resumes reading there.

The file is a private cache of this broker. It holds the arrays of the caches in the machine's byte order, so a million
segments load in a moment. A file with another format, byte order or checksum is ignored, and the topic is read from its
beginning. Written aside, fsynced, renamed, directory fsynced.

```
magic, format, byte order mark, CRC-32C of the rest
topic id, partition, next offset, leader epoch of the last record read
caches: partition, state of its removal, rows, slots, custom metadata, epochs, compacted_to, unfinished rows,
        twice, for segments as copied and for compacted ones,
        per epoch: first offsets, last offsets, rows, first offsets with aborted transactions, covered intervals
```
"""

import struct
from array import array
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, Literal

from protocol.ids import LeaderEpoch
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Buffer, Uuid
from protocol.records.compiled import crc32c
from storage.files import FileSystem, join, read_file, replace_file
from storage.tiered.catalog.epoch_intervals import CoveredInterval, IntervalColumns
from storage.tiered.catalog.materialized_metadata import MaterializedMetadata
from storage.tiered.catalog.metadata_cache import CacheColumns, RemoteLogMetadataCache
from storage.tiered.catalog.segment_table import TableColumns
from storage.tiered.segment_metadata import PartitionDelete, PartitionDeleteState, SegmentEpoch, TopicIdPartition

_MAGIC: Final = b"ottla-remote-metadata\n"
_FORMAT: Final = 2
_BYTE_ORDER: Final = 0x01020304
_PREFIX: Final = struct.Struct("=22sIII")
_POSITION: Final = struct.Struct("=16siqii")
_PARTITION: Final = struct.Struct("=16siH")
_REMOVAL: Final = struct.Struct("=bqi")
_SIZE: Final = struct.Struct("=I")
_NUMBER: Final = struct.Struct("=i")
_SIZED: Final = struct.Struct("=iI")
_EPOCH: Final = struct.Struct("=iq")
_COMPACTED: Final = struct.Struct("=iq")
_NO_REMOVAL: Final = -1

DIRECTORY: Final = "remote-log-metadata"
"""Directory name in the first log directory."""


class CorruptSnapshot(Exception):
    """An unusable snapshot file."""


@lazy_dataclass(frozen=True, slots=True)
class SnapshotPosition:
    """Position of a snapshot: `next_offset` is the first offset that was not read.

    `leader_epoch` is the epoch of the last record read, -1 if there was none; a different epoch there means another
    log.
    """

    topic_id: Uuid
    partition: int
    next_offset: int
    leader_epoch: LeaderEpoch


def snapshot_path(directory: str, partition: int) -> str:
    """Return the path of the snapshot of a metadata partition."""
    return join(directory, f"{partition:05}.snapshot")


def write_snapshot(fs: FileSystem, path: str, body: list[Buffer]) -> None:
    """Replace the file at `path` by the result of `pack_snapshot`. Blocks. Raises OSError."""
    content = b"".join(body)
    replace_file(fs, path, _PREFIX.pack(_MAGIC, _FORMAT, _BYTE_ORDER, crc32c(content)) + content)


def read_snapshot(fs: FileSystem, path: str) -> tuple[SnapshotPosition, MaterializedMetadata]:
    """Read a snapshot. Blocks. Raises CorruptSnapshot, FileNotFoundError, OSError."""
    data = read_file(fs, path)
    if len(data) < _PREFIX.size:
        raise CorruptSnapshot(f"{path} is cut off")
    magic, number, order, crc = _PREFIX.unpack_from(data)
    if (magic, number, order) != (_MAGIC, _FORMAT, _BYTE_ORDER):
        raise CorruptSnapshot(f"{path} is of another format")
    content = memoryview(data)[_PREFIX.size :]
    if crc32c(content) != crc:
        raise CorruptSnapshot(f"{path} has a wrong checksum")
    try:
        return _unpack(_Cursor(content))
    except (struct.error, ValueError, IndexError) as error:
        raise CorruptSnapshot(f"{path} does not parse: {error}") from error


def pack_snapshot(position: SnapshotPosition, metadata: MaterializedMetadata) -> list[Buffer]:
    """Return the body of the file in parts, copied, so that the caches may change meanwhile."""
    caches = list(metadata)
    head = _POSITION.pack(
        position.topic_id, position.partition, position.next_offset, position.leader_epoch, len(caches)
    )
    parts: list[Buffer] = [head]
    for cache in caches:
        parts += _pack_cache(cache)
    return parts


def _unpack(cursor: "_Cursor") -> tuple[SnapshotPosition, MaterializedMetadata]:
    topic_id, partition, next_offset, leader_epoch, count = cursor.unpack(_POSITION)
    caches = [_unpack_cache(cursor) for _ in range(count)]
    return SnapshotPosition(Uuid(topic_id), partition, next_offset, leader_epoch), MaterializedMetadata(caches)


# ---- caches


def _pack_cache(cache: RemoteLogMetadataCache) -> Iterator[Buffer]:
    topic_id, topic, number = cache.partition
    name = topic.encode()
    yield _PARTITION.pack(topic_id, number, len(name)) + name
    deletion = cache.deletion
    if deletion is None:
        yield _REMOVAL.pack(_NO_REMOVAL, 0, 0)
    else:
        yield _REMOVAL.pack(deletion.state, deletion.event_timestamp_ms, deletion.broker_id)
    columns = cache.columns()
    yield from _pack_table(columns.table)
    yield from _pack_array(array("i", columns.unfinished))
    yield from _pack_layer(columns.epochs)
    yield from _pack_layer(columns.compacted)


def _pack_layer(epochs: dict[LeaderEpoch, IntervalColumns]) -> Iterator[Buffer]:
    yield _SIZE.pack(len(epochs))
    for epoch, intervals in epochs.items():
        yield _NUMBER.pack(epoch)
        for numbers in (intervals.firsts, intervals.lasts, intervals.rows, intervals.aborted):
            yield from _pack_array(numbers)
        yield from _pack_array(array("q", chain.from_iterable(intervals.covered)))


def _unpack_cache(cursor: "_Cursor") -> RemoteLogMetadataCache:
    topic_id, number, size = cursor.unpack(_PARTITION)
    partition = TopicIdPartition(Uuid(topic_id), bytes(cursor.take(size)).decode(), number)
    state, timestamp_ms, broker_id = cursor.unpack(_REMOVAL)
    deletion = None
    if state != _NO_REMOVAL:
        deletion = PartitionDelete(partition, PartitionDeleteState(state), timestamp_ms, broker_id)
    table = _unpack_table(cursor)
    unfinished = set(cursor.array("i"))
    columns = CacheColumns(table, unfinished, _unpack_layer(cursor), _unpack_layer(cursor))
    return RemoteLogMetadataCache.of_columns(partition, deletion, columns)


def _unpack_layer(cursor: "_Cursor") -> dict[LeaderEpoch, IntervalColumns]:
    epochs: dict[LeaderEpoch, IntervalColumns] = {}
    for _ in range(cursor.count()):
        (epoch,) = cursor.unpack(_NUMBER)
        epochs[epoch] = _unpack_intervals(cursor)
    return epochs


def _unpack_intervals(cursor: "_Cursor") -> IntervalColumns:
    firsts, lasts, rows, aborted = cursor.array("q"), cursor.array("q"), cursor.array("i"), cursor.array("q")
    numbers = iter(cursor.array("q"))
    covered = [
        CoveredInterval(first, minus_last, row, bool(has_aborted))
        for first, minus_last, row, has_aborted in zip(numbers, numbers, numbers, numbers, strict=True)
    ]
    return IntervalColumns(firsts, lasts, rows, aborted, covered)


def _pack_table(columns: TableColumns) -> Iterator[Buffer]:
    yield _SIZE.pack(len(columns.rows))
    yield bytes(columns.rows)
    yield from _pack_array(columns.slots)
    yield _SIZE.pack(len(columns.custom))
    for row, custom in columns.custom.items():
        yield _SIZED.pack(row, len(custom)) + custom
    yield _SIZE.pack(len(columns.epochs))
    for row, epochs in columns.epochs.items():
        yield _SIZED.pack(row, len(epochs)) + b"".join(_EPOCH.pack(*epoch) for epoch in epochs)
    yield _SIZE.pack(len(columns.compacted))
    yield b"".join(_COMPACTED.pack(*item) for item in columns.compacted.items())


def _unpack_table(cursor: "_Cursor") -> TableColumns:
    rows = bytearray(cursor.take(cursor.count()))
    slots = cursor.array("i")
    custom: dict[int, bytes] = {}
    for _ in range(cursor.count()):
        row, size = cursor.unpack(_SIZED)
        custom[row] = bytes(cursor.take(size))
    epochs: dict[int, tuple[SegmentEpoch, ...]] = {}
    for _ in range(cursor.count()):
        row, count = cursor.unpack(_SIZED)
        epochs[row] = tuple(SegmentEpoch(*cursor.unpack(_EPOCH)) for _ in range(count))
    compacted: dict[int, int] = dict(cursor.unpack(_COMPACTED) for _ in range(cursor.count()))
    return TableColumns(rows, slots, custom, epochs, compacted)


def _pack_array(numbers: "array[int]") -> Iterator[Buffer]:
    yield _SIZE.pack(len(numbers) * numbers.itemsize)
    yield numbers.tobytes()


class _Cursor:
    """Sequential reader of a snapshot body. Raises struct.error, ValueError."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> memoryview:
        part = self._data[self._at : self._at + size]
        if len(part) < size:
            raise ValueError(f"{size} bytes are wanted where {len(part)} are left")
        self._at += size
        return part

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size))

    def count(self) -> int:
        count: int = _SIZE.unpack(self.take(_SIZE.size))[0]
        return count

    def array(self, kind: Literal["i", "q"]) -> "array[int]":
        numbers = array(kind)
        numbers.frombytes(self.take(self.count()))
        return numbers
