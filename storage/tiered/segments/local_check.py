"""Check of a local segment while it is copied: readable files, batches in place, valid checksums, right leader epochs.

The check sees the bytes on their way to remote storage, so the file is read once and what is checked is what is stored.
It runs on the copier's thread. Rot on one disk must not reach remote storage: once a segment is copied, the intact
replicas of other brokers expire. The checksum of a batch does not cover its leader epoch, which is compared with the
epochs in the segment's metadata.
"""

import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final, NoReturn, cast

from protocol.primitives import Buffer
from protocol.records.batch import ATTRIBUTES_POSITION, HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC, NO_LEADER_EPOCH
from protocol.records.compiled import crc32c
from storage.files import File, FileSystem
from storage.tiered.errors import CorruptLocalSegment
from storage.tiered.segment_metadata import RemoteSegment
from storage.tiered.segments.store_errors import file_errors

_FIELDS: Final = struct.Struct(">qiibI2xi")
"""Base offset, batch length, leader epoch, magic, CRC and last offset delta of a batch header."""
_CHUNK_BYTES: Final = 1 << 20
_NO_END: Final = 1 << 63


class LocalSegmentCheck:
    """The check of one segment, fed with its bytes in ascending order. All methods raise CorruptLocalSegment.

    `epochs_known_from`: the offset from which the log knows its leader epochs. Deleted records below may have others.
    """

    def __init__(self, segment: RemoteSegment, path: str, epochs_known_from: int) -> None:
        self.position = 0
        """Bytes seen from the beginning of the file."""
        self._segment = segment
        self._path = path
        self._tail: bytes = b""
        self._next_offset = segment.start_offset
        self._epochs = segment.leader_epochs
        self._known_from = epochs_known_from
        self._epoch = self._epochs[0].epoch
        self._epoch_count = 1
        self._epoch_end = self._end_of_epoch()

    def feed(self, position: int, data: Buffer) -> None:
        """Check the bytes at a position; those seen before are skipped, and those behind a gap left to `feed_rest`."""
        if position > self.position or position + len(data) <= self.position:
            return
        new = memoryview(data)[self.position - position :]
        self.position += len(new)
        whole = self._tail + bytes(new) if self._tail else new
        self._tail = bytes(whole[self._check(memoryview(whole)) :])

    @property
    def has_all(self) -> bool:
        """Whether all bytes of the segment were seen."""
        return self.position >= self._segment.size_bytes

    def feed_rest(self, file: File) -> None:
        """Check the bytes that were not seen. Raises OSError."""
        while not self.has_all:
            chunk = file.read(self.position, min(_CHUNK_BYTES, self._segment.size_bytes - self.position))
            if not chunk:
                self._refuse(f"the file ends at byte {self.position} of {self._segment.size_bytes}")
            self.feed(self.position, chunk)

    def finish(self) -> None:
        """Check the end of the segment, after all bytes."""
        if self._tail:
            self._refuse(f"{len(self._tail)} bytes at the end are no batch")

    def _check(self, view: memoryview) -> int:
        """Check the complete batches of `view`; return the position after them."""
        at, end, last_offset = 0, len(view), self._segment.end_offset
        left = self._segment.size_bytes - self.position + end
        while end - at >= HEADER_SIZE:
            base, length, epoch, magic, crc, delta = _FIELDS.unpack_from(view, at)
            size = length + LENGTH_PREFIX_SIZE
            if magic != MAGIC or not HEADER_SIZE <= size <= left - at:
                self._refuse(f"no batch at byte {self.position - end + at}")
            if at + size > end:
                break
            if crc32c(view[at + ATTRIBUTES_POSITION : at + size]) != crc:
                self._refuse(f"the checksum of the batch at offset {base}, byte {self.position - end + at}, is wrong")
            last = base + delta
            if base < self._next_offset or delta < 0 or last > last_offset:
                self._refuse(f"offset {base} at byte {self.position - end + at} is out of place")
            # All records of a batch have one epoch. The log start offset may lie within the first batch, so its last
            # record decides.
            while last >= self._epoch_end:
                self._begin_epoch()
            if epoch != self._epoch and last >= self._known_from and epoch != NO_LEADER_EPOCH:
                self._refuse(f"the batch at offset {base} has leader epoch {epoch}, the log has {self._epoch}")
            self._next_offset = last + 1
            at += size
        return at

    def _begin_epoch(self) -> None:
        self._epoch = self._epochs[self._epoch_count].epoch
        self._epoch_count += 1
        self._epoch_end = self._end_of_epoch()

    def _end_of_epoch(self) -> int:
        is_last = self._epoch_count == len(self._epochs)
        return _NO_END if is_last else self._epochs[self._epoch_count].start_offset

    def _refuse(self, fault: str) -> NoReturn:
        raise CorruptLocalSegment(f"{self._path}: {fault}")


class WatchedFile:
    """A file whose reads are watched, and those of the segment's log checked; everything else goes to the file."""

    def __init__(self, file: File, watch: "WatchedFiles", *, is_log: bool) -> None:
        self._file = file
        self._watch = watch
        self._is_log = is_log

    def size(self) -> int:
        with self._watch.disk_errors():
            return self._file.size()

    def read(self, position: int, size: int) -> bytes:
        with self._watch.disk_errors():
            data = self._file.read(position, size)
        if self._is_log:
            self._watch.on_read(position, data)
        return data

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


class WatchedFiles:
    """A file system for one copy: reads of the segment's log are counted and checked, errors of the disk are noted.

    A remote storage manager may read the log by other means or in any order; `finish` checks the rest. It may also
    wrap or replace an error of a read: `fault` and `disk_error` keep the first ones.
    """

    def __init__(self, fs: FileSystem, segment: RemoteSegment, log: str, epochs_known_from: int) -> None:
        self._fs = fs
        self._log = log
        self._check = LocalSegmentCheck(segment, log, epochs_known_from)
        self.fault: CorruptLocalSegment | None = None
        self.disk_error: OSError | None = None

    @classmethod
    def over(
        cls, fs: FileSystem, segment: RemoteSegment, log: str, epochs_known_from: int
    ) -> tuple["WatchedFiles", FileSystem]:
        """Return the watch, also as a file system."""
        watch = cls(fs, segment, log, epochs_known_from)
        return watch, cast(FileSystem, watch)

    @property
    def bytes_read(self) -> int:
        """Bytes of the log read in order so far; may be called from any thread."""
        return self._check.position

    def open_existing(self, path: str) -> File:
        with self.disk_errors():
            file = self._fs.open_existing(path)
        return cast(File, WatchedFile(file, self, is_log=path == self._log))

    def open(self, path: str) -> File:
        return self.open_existing(path)

    @contextmanager
    def disk_errors(self) -> Iterator[None]:
        """Note the first error of the disk."""
        try:
            yield
        except OSError as error:
            self.disk_error = self.disk_error or error
            raise

    def on_read(self, position: int, data: Buffer) -> None:
        """Check what was read. Raises CorruptLocalSegment."""
        try:
            self._check.feed(position, data)
        except CorruptLocalSegment as error:
            self.fault = error
            raise

    def finish(self) -> None:
        """Check the bytes that were not read, after the copy. Raises CorruptLocalSegment, RemoteStorageError."""
        if self.fault is not None:
            raise self.fault
        if not self._check.has_all:
            with (
                file_errors(f"reading {self._log}"),
                self.disk_errors(),
                closing(self._fs.open_existing(self._log)) as file,
            ):
                self._check.feed_rest(file)
        self._check.finish()

    def __getattr__(self, name: str) -> object:
        return getattr(self._fs, name)
