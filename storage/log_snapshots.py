"""Snapshots that replace the beginning of a log: files `<end offset>-<epoch>.checkpoint` beside its segments (KIP-630).

A snapshot is a sequence of record batches: first a control batch with the header, last one with the footer, valid
checksums, offsets from 0 without gaps, and the leader epoch of the file name. The records are opaque here.

Durability. A snapshot is written to a temporary name (`.part`), synced, renamed, and the directory synced; a file
without a suffix is therefore complete, and one with a suffix is ignored after a crash. Callers decide which snapshots
to remove. All functions block and raise OSError.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from protocol.ids import EPOCH_ZERO, LeaderEpoch
from protocol.primitives import Buffer
from protocol.records.batch import HEADER_SIZE, BatchHeader, crc_is_valid, parse_header
from protocol.records.control import ControlType, control_type
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import FullRecord, iter_records
from storage.errors import DamagedSnapshot
from storage.files import File, FileSystem, join

CHECKPOINT_SUFFIX = ".checkpoint"
PART_SUFFIX = ".part"
DELETED_SUFFIX = ".deleted"
DAMAGED_SUFFIX = ".damaged"
"""Suffix of a snapshot that failed its check, kept for inspection."""

MAX_BATCH_BYTES = 16 * 1024 * 1024
"""Twice the largest batch of any writer; a greater length is damage, and must not allocate memory."""
READ_BYTES = 1024 * 1024
_SYNC_BYTES = 8 * 1024 * 1024
"""Bytes written between syncs: the final sync of a large snapshot must not delay those of the log."""
_OWN_MARK = "-own"
"""Part of the temporary name: distinguishes a snapshot being generated from the same one being fetched."""
_IMPORT_MARK = "-import"
"""Part of the temporary name of an imported snapshot."""
_HEADER_VALUE = struct.Struct(">hq")
"""SnapshotHeaderRecord: version, and append time of the last record before the snapshot's end offset."""


class CheckpointId(NamedTuple):
    """The snapshot's end offset (exclusive), and the leader epoch of the last record before it."""

    end_offset: int
    epoch: LeaderEpoch

    @property
    def order(self) -> tuple[LeaderEpoch, int]:
        """Sort key: by epoch, then by end offset."""
        return self.epoch, self.end_offset


FORMATTED = CheckpointId(0, EPOCH_ZERO)
"""Id of the snapshot that formatting writes; it replaces no records."""

OnControl = Callable[[memoryview], None]
"""Receives each control batch of a snapshot, including header and footer; may raise MalformedRecords."""


def checkpoint_name(id: CheckpointId) -> str:
    return f"{id.end_offset:020d}-{id.epoch:010d}{CHECKPOINT_SUFFIX}"


def parse_checkpoint_name(name: str) -> CheckpointId | None:
    """Return the id in a file name; None if it is not that of a complete snapshot."""
    end_offset, dash, epoch = name.removesuffix(CHECKPOINT_SUFFIX).partition("-")
    if not dash or not (end_offset.isdecimal() and epoch.isdecimal()):
        return None
    id = CheckpointId(int(end_offset), LeaderEpoch(int(epoch)))
    return id if checkpoint_name(id) == name else None


class SnapshotFiles:
    """The snapshots in one directory. Stateless; different ids may be handled on different threads."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory

    # What is there

    def ids(self) -> list[CheckpointId]:
        """Return the ids of complete snapshots in order, including the one of formatting."""
        found = (parse_checkpoint_name(name) for name in self._fs.list(self._directory))
        return sorted((id for id in found if id is not None), key=lambda id: id.order)

    def exists(self, id: CheckpointId) -> bool:
        return self._fs.exists(self._path(id))

    def size(self, id: CheckpointId) -> int:
        """Return the size in bytes. Raises FileNotFoundError."""
        return self._fs.size(self._path(id))

    def open(self, id: CheckpointId) -> "FileRawSnapshotReader":
        """Open a snapshot. Raises FileNotFoundError. The reader continues after the snapshot is removed."""
        return FileRawSnapshotReader(self._fs.open_existing(self._path(id)), id)

    def view(self, id: CheckpointId) -> memoryview:
        """Return the bytes of a snapshot, read into the page cache. Raises FileNotFoundError.

        The view stays valid after the snapshot is removed.
        """
        file = self._fs.open_existing(self._path(id))
        try:
            file.warm(0, file.size())
            return file.view(0, file.size())
        finally:
            file.close()

    def read(self, id: CheckpointId, position: int, max_bytes: int) -> bytes:
        """Return bytes from `position` on, fewer at the end. Raises FileNotFoundError."""
        file = self._fs.open_existing(self._path(id))
        try:
            return file.read(position, max_bytes)
        finally:
            file.close()

    def check(self, id: CheckpointId, on_control: OnControl) -> int:
        """Check the whole snapshot; return the timestamp in its header. Raises DamagedSnapshot, FileNotFoundError."""
        return self._check(self._path(id), id, on_control)

    def read_timestamp(self, id: CheckpointId) -> int:
        """Return the timestamp in the header. Raises DamagedSnapshot, FileNotFoundError."""
        file = self._fs.open_existing(self._path(id))
        try:
            for batch in _batches(file, file.size(), id):
                return SnapshotFileCheck(id).take_first(batch)
        finally:
            file.close()
        raise DamagedSnapshot(checkpoint_name(id), "the file is empty")

    # Making one

    def begin(self, id: CheckpointId) -> "FileRawSnapshotWriter":
        """Begin to write a snapshot, which becomes visible on commit."""
        return FileRawSnapshotWriter(self._fs, self._directory, id)

    def begin_import(self, id: CheckpointId) -> "FileRawSnapshotWriter":
        """Begin to write a snapshot from another source than a replica; the writer leaves it as a part."""
        return FileRawSnapshotWriter(self._fs, self._directory, id, _IMPORT_MARK)

    def check_import(self, id: CheckpointId, on_control: OnControl) -> None:
        """Check the part that an import has left. Raises DamagedSnapshot."""
        self._check(self._part(id, is_imported=True), id, on_control)

    def has_room_for(self, size: int) -> bool:
        """Whether at least `size` bytes stay free after `size` more bytes are used."""
        return self._fs.disk_space(self._directory).usable_bytes >= 2 * size

    def write_part(self, id: CheckpointId, position: int, data: Buffer) -> None:
        """Write bytes of a fetched snapshot. Position 0 starts over; any other must be the end of the part."""
        file = self._fs.open(self._part(id))
        try:
            if position == 0:
                file.truncate(0)
            if file.size() != position:
                raise AssertionError(f"{self._part(id)} has {file.size()} bytes, next position is {position}")
            file.write(position, data)
        finally:
            file.close()

    def finish_part(self, id: CheckpointId, size: int, on_control: OnControl, *, is_imported: bool = False) -> int:
        """Check a fetched snapshot of `size` bytes, sync it and rename it; return the timestamp in its header.

        `is_imported`: the part comes from an import. Raises DamagedSnapshot; then the part remains until it is
        discarded. A crash leaves either a part, which is ignored, or the complete snapshot.
        """
        part = self._part(id, is_imported=is_imported)
        if not self._fs.exists(part) or self._fs.size(part) != size:
            raise DamagedSnapshot(checkpoint_name(id), f"the file does not have its {size} bytes")
        timestamp_ms = self._check(part, id, on_control)
        _put_in_place(self._fs, self._directory, part, self._path(id))
        return timestamp_ms

    def discard_part(self, id: CheckpointId, *, is_imported: bool = False) -> None:
        self._fs.remove(self._part(id, is_imported=is_imported))

    # Losing one

    def remove(self, id: CheckpointId) -> None:
        """Remove a snapshot; after a crash the complete file may exist again."""
        self._fs.remove(self._path(id))

    def set_aside(self, id: CheckpointId) -> None:
        """Rename a damaged snapshot, which then no longer counts as one."""
        self._fs.rename(self._path(id), self._path(id) + DAMAGED_SUFFIX)

    def remove_leftovers(self) -> None:
        """Remove parts of interrupted fetches and generations, and files that Kafka marked as deleted."""
        for name in self._fs.list(self._directory):
            if name.endswith((CHECKPOINT_SUFFIX + PART_SUFFIX, CHECKPOINT_SUFFIX + DELETED_SUFFIX)):
                self._fs.remove(join(self._directory, name))

    def _path(self, id: CheckpointId) -> str:
        return join(self._directory, checkpoint_name(id))

    def _part(self, id: CheckpointId, *, is_imported: bool = False) -> str:
        return _aside(self._path(id), _IMPORT_MARK if is_imported else "")

    def _check(self, path: str, id: CheckpointId, on_control: OnControl) -> int:
        file = self._fs.open_existing(path)
        try:
            return check_snapshot(file, id, on_control)
        finally:
            file.close()


class FileRawSnapshotWriter:
    """Writes a snapshot to a temporary file, with memory bounded by the arguments of `append`. For one thread at a
    time.
    """

    def __init__(self, fs: FileSystem, directory: str, id: CheckpointId, mark: str = _OWN_MARK) -> None:
        self._fs = fs
        self._directory = directory
        self._target = join(directory, checkpoint_name(id))
        self._aside = _aside(self._target, mark)
        self._file = fs.open(self._aside)
        self._file.truncate(0)
        self.size = 0
        self._synced = 0

    def append(self, data: Buffer) -> None:
        """Append whole batches or any part of one."""
        self._file.write(self.size, data)
        self.size += len(data)
        if self.size - self._synced >= _SYNC_BYTES:
            self._file.sync()
            self._synced = self.size

    def commit(self) -> None:
        """Make the snapshot visible, durably."""
        self._file.close()
        _put_in_place(self._fs, self._directory, self._aside, self._target)

    def leave(self) -> None:
        """Sync the part and leave it for `finish_part`. After an earlier crash the part is ignored."""
        self._file.sync()
        self._file.close()

    def abandon(self) -> None:
        """Remove the temporary file; no effect after `commit`."""
        self._file.close()
        self._fs.remove(self._aside)


class FileRawSnapshotReader:
    """Returns a snapshot in chunks of whole batches. `size` in bytes; call `close` at the end."""

    def __init__(self, file: File, id: CheckpointId) -> None:
        self._file = file
        self._id = id
        self._position = 0
        self.size = file.size()

    def next_chunk(self) -> bytes:
        """Return about 1 MiB of whole batches, or one larger batch; empty at the end. Raises DamagedSnapshot."""
        chunk = self._file.read(self._position, READ_BYTES)
        try:
            end = _whole_batches(chunk)
            if chunk and not end:
                end = _size_of_first(chunk, self.size - self._position)
                chunk = _read_all(self._file, self._position, end)
        except MalformedBatch as error:
            raise DamagedSnapshot(checkpoint_name(self._id), f"from byte {self._position} on: {error}") from error
        self._position += end
        return chunk[:end]

    def close(self) -> None:
        self._file.close()


def check_snapshot(file: File, id: CheckpointId, on_control: OnControl) -> int:
    """Check a snapshot from end to end; return the timestamp in its header. Raises DamagedSnapshot.

    At most one batch is in memory at a time, read in chunks of 1 MiB.
    """
    check = SnapshotFileCheck(id, on_control)
    for batch in _batches(file, file.size(), id):
        check.take(batch)
    return check.finish()


def view_batches(view: memoryview, id: CheckpointId) -> Iterator[memoryview]:
    """Yield every batch of a snapshot. Raises DamagedSnapshot for bytes that are no batch."""
    position = 0
    try:
        while position < len(view):
            size = parse_header(view, position).size
            if size > min(len(view) - position, MAX_BATCH_BYTES):
                raise MalformedBatch(f"a batch of {size} bytes, but only {len(view) - position} bytes are left")
            yield view[position : position + size]
            position += size
    except MalformedBatch as error:
        raise DamagedSnapshot(checkpoint_name(id), f"at byte {position}: {error}") from error


def _aside(path: str, mark: str) -> str:
    """Return the temporary path of a snapshot."""
    return path.removesuffix(CHECKPOINT_SUFFIX) + mark + CHECKPOINT_SUFFIX + PART_SUFFIX


def _put_in_place(fs: FileSystem, directory: str, aside: str, target: str) -> None:
    """Sync the temporary file before the rename: a file with the final name is complete."""
    file = fs.open_existing(aside)
    try:
        file.sync()
    finally:
        file.close()
    fs.rename(aside, target)
    fs.sync_directory(directory)


def _ignore(batch: memoryview) -> None:
    """Ignore control records."""


class SnapshotFileCheck:
    """The check of a snapshot's batches in their order."""

    def __init__(self, id: CheckpointId, on_control: OnControl = _ignore) -> None:
        self._id = id
        self._on_control = on_control
        self._next_offset = 0
        self._timestamp_ms: int | None = None
        self._is_finished = False

    def take(self, batch: memoryview) -> BatchHeader | None:
        """Check one batch, and return the header of a data batch. Raises DamagedSnapshot."""
        if self._timestamp_ms is None:
            self.take_first(batch)
            return None
        header = self._checked_header(batch)
        if not header.is_control:
            return header
        self._take_control(batch, self._control_types(batch))
        return None

    def take_first(self, batch: memoryview) -> int:
        """Check the first batch and return the header's timestamp. Raises DamagedSnapshot."""
        header = self._checked_header(batch)
        types = self._control_types(batch) if header.is_control else []
        if types[:1] != [ControlType.SNAPSHOT_HEADER]:
            raise self._damaged("the snapshot does not begin with its header")
        self._timestamp_ms = self._read_timestamp(batch)
        self._take_control(batch, types[1:])
        if self._is_finished:
            raise self._damaged("the footer shares its batch with other records")
        return self._timestamp_ms

    def finish(self) -> int:
        """Return the header's timestamp. Raises DamagedSnapshot."""
        if self._timestamp_ms is None or not self._is_finished:
            raise self._damaged("the snapshot does not end with its footer")
        return self._timestamp_ms

    def _checked_header(self, batch: memoryview) -> BatchHeader:
        header = parse_header(batch)
        if self._is_finished:
            raise self._damaged("a batch follows the footer")
        if header.leader_epoch != self._id.epoch:
            raise self._damaged(f"a batch has leader epoch {header.leader_epoch}")
        if header.base_offset != self._next_offset or header.record_count != header.last_offset_delta + 1:
            raise self._damaged(f"the batch at offset {header.base_offset} is out of place")
        if not crc_is_valid(batch, 0, header.size):
            raise self._damaged(f"the batch at offset {header.base_offset} fails its checksum")
        self._next_offset = header.next_offset
        return header

    def _take_control(self, batch: memoryview, types: list[ControlType | None]) -> None:
        if ControlType.SNAPSHOT_HEADER in types:
            raise self._damaged("the snapshot has a second header")
        if ControlType.SNAPSHOT_FOOTER in types:
            self._is_finished = types == [ControlType.SNAPSHOT_FOOTER]
            if not self._is_finished:
                raise self._damaged("the footer shares its batch with other records")
        try:
            self._on_control(batch)
        except MalformedRecords as error:
            raise self._damaged(str(error)) from error

    def _control_types(self, batch: memoryview) -> list[ControlType | None]:
        try:
            return [control_type(record.key) for record in iter_records(batch)]
        except MalformedRecords as error:
            raise self._damaged(str(error)) from error

    def _read_timestamp(self, batch: memoryview) -> int:
        record: FullRecord = next(iter_records(batch))
        value = record.value or b""
        if len(value) < _HEADER_VALUE.size:
            raise self._damaged("the header is too short")
        timestamp_ms: int = _HEADER_VALUE.unpack_from(value)[1]
        return timestamp_ms

    def _damaged(self, reason: str) -> DamagedSnapshot:
        return DamagedSnapshot(checkpoint_name(self._id), reason)


def _batches(file: File, size: int, id: CheckpointId) -> Iterator[memoryview]:
    """Yield every batch, valid until the next step. Raises DamagedSnapshot for bytes that are no batch."""
    position, window, start = 0, b"", 0
    try:
        while position < size:
            at = position - start
            if at + HEADER_SIZE > len(window):
                window, start, at = file.read(position, READ_BYTES), position, 0
            batch_size = _size_of_first(window[at : at + HEADER_SIZE], size - position)
            if at + batch_size > len(window):
                window, start, at = _read_all(file, position, max(batch_size, READ_BYTES)), position, 0
            yield memoryview(window)[at : at + batch_size]
            position += batch_size
    except MalformedBatch as error:
        raise DamagedSnapshot(checkpoint_name(id), f"at byte {position}: {error}") from error


def _read_all(file: File, position: int, size: int) -> bytes:
    """Read in chunks, because no read needs to be large."""
    end = position + size
    return b"".join(file.read(at, min(READ_BYTES, end - at)) for at in range(position, end, READ_BYTES))


def _whole_batches(chunk: bytes) -> int:
    """Return the position where the last whole batch in `chunk` ends."""
    position = 0
    while position + HEADER_SIZE <= len(chunk):
        size = parse_header(chunk, position).size
        if position + size > len(chunk):
            break
        position += size
    return position


def _size_of_first(chunk: bytes, available: int) -> int:
    """Return the size of the first batch. Raises MalformedBatch."""
    size = parse_header(chunk).size
    if size > min(available, MAX_BATCH_BYTES):
        raise MalformedBatch(f"a batch of {size} bytes, but only {available} bytes are left")
    return size
