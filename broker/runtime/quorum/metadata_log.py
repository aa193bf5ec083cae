"""The metadata log on this node's disk: batches and snapshots, and what the quorum wants done to them.

Threads. One thread owns the log, as any other: `perform` of Append, TruncateTo, StartAt and Trim, `read`, and what
reads facts. `sync` may run elsewhere meanwhile, and so may all that only concerns snapshots, one call at a time for
each of them: `perform` of WritePart, FinishPart and DiscardPart, `begin_snapshot` and its writer, pages and readers.

A crash at any line leaves what `MetadataRecovery` mends; what survives it is said with each operation. An OSError is
the log's failure (LogDirFailure, now and at every later call), but for those of a snapshot written here: they harm
nothing.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import NamedTuple, assert_never

from broker.quorum.control_records import read_control_records
from broker.quorum.identity import SnapshotId
from broker.quorum.ready import Append, DiscardPart, FinishPart, LogOperation, StartAt, Trim, TruncateTo, WritePart
from broker.quorum.settings import ControlRecord, Recovered, StoredSnapshot
from broker.runtime.quorum.metadata_recovery import MetadataRecovery
from protocol.records.batch import iter_headers
from storage.config import LogConfig
from storage.errors import DamagedSnapshot, LogDirFailure, UnexpectedOffset
from storage.files import FileSystem
from storage.local_log import LogSlice
from storage.log import Log
from storage.log_snapshots import CheckpointId, RawSnapshotReader, SnapshotFiles
from storage.log_snapshots import RawSnapshotWriter as SnapshotFileWriter


class FetchedSnapshot(NamedTuple):
    """A fetched snapshot that was found whole and is in place, and what it says of kraft.version and the voters."""

    stored: StoredSnapshot
    control: tuple[ControlRecord, ...]


class SnapshotNotFound(Exception):
    """The snapshot is not, or no longer, on the disk."""


class RaftMetadataLog:
    """`recovered` is what the disk held when it was opened, without the election state, which is another file's."""

    def __init__(self, fs: FileSystem, directory: str, log: Log, recovered: Recovered) -> None:
        self.directory = directory
        self.recovered = recovered
        self.log = log
        self._files = SnapshotFiles(fs, directory)
        self._garbage: deque[Callable[[], None]] = deque()

    @classmethod
    def open(cls, fs: FileSystem, directory: str, config: LogConfig, now_ms: int) -> "RaftMetadataLog":
        """Reads and mends what is in `directory`, or begins an empty log. Blocks, for long if the log is.

        Raises UnusableMetadataLog with a sentence why the node must not start; LogDirFailure.
        """
        try:
            recovery = MetadataRecovery(fs, directory, config, now_ms)
            recovered = recovery.run()
        except OSError as error:
            raise LogDirFailure(directory, error) from error
        return cls(fs, directory, recovery.log, recovered)

    # Facts

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def size_bytes(self) -> int:
        """Of all segments."""
        return self.log.size_bytes

    @property
    def snapshots(self) -> SnapshotFiles:
        """The files, for who only reads them."""
        return self._files

    def advance_high_watermark(self, offset: int) -> bool:
        """For readers of the log who ask up to where it is committed; says whether it moved."""
        return self.log.advance_high_watermark(offset)

    # What the quorum wants done

    def perform(self, operation: LogOperation, now_ms: int) -> FetchedSnapshot | None:
        """Does one operation. Returns something for FinishPart alone: None if the part was not a whole snapshot.

        Append and WritePart stay in the page cache; Trim renames a few files; DiscardPart unlinks. TruncateTo, StartAt
        and FinishPart block for fsyncs, FinishPart also for reading the whole snapshot. Raises LogDirFailure, and
        UnexpectedOffset for an append that does not continue the log.
        """
        with self._failing():
            match operation:
                case Append():
                    self._append(operation, now_ms)
                case TruncateTo(offset):
                    self._truncate_to(offset, now_ms)
                case StartAt(snapshot_id):
                    self._start_at(snapshot_id, now_ms)
                case Trim(snapshot_id):
                    self._trim(snapshot_id, now_ms)
                case WritePart(snapshot_id, position, data):
                    self._files.write_part(CheckpointId(*snapshot_id), position, data)
                case FinishPart():
                    return self._finish_part(operation)
                case DiscardPart(snapshot_id):
                    self._files.discard_part(CheckpointId(*snapshot_id))
                case _:
                    assert_never(operation)
        return None

    def sync(self) -> int:
        """Returns the end offset of what is on the disk: at least all that was done before the call. Blocks for fsyncs,
        and unlinks what was trimmed.
        """
        end_offset = self.log.flush()
        with self._failing():
            while self._garbage:
                self._garbage.popleft()()
        return end_offset

    def _append(self, operation: Append, now_ms: int) -> None:
        """A crash before the sync leaves any of the batches, from the first on."""
        expected = self.log.log_end_offset
        for _, header in iter_headers(operation.batches):
            if header.base_offset != expected:
                raise UnexpectedOffset(expected, header.base_offset)
            expected = header.next_offset
        if expected != operation.end_offset:
            raise UnexpectedOffset(operation.end_offset, expected)
        self.log.append_as_follower(operation.batches, now_ms=now_ms)

    def _truncate_to(self, offset: int, now_ms: int) -> None:
        """Durable on return. A crash before leaves a log that ends where it did or nearer to `offset`."""
        if offset < self.log_start_offset:
            raise AssertionError(f"the metadata log starts at {self.log_start_offset}, it cannot end at {offset}")
        self.log.truncate_to(offset, now_ms=now_ms)

    def _start_at(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        """Durable on return. A crash before leaves less of the old log, and the snapshot, at which the next start
        begins the log: it is newer, or the old log has another history there.
        """
        if not self._files.exists(CheckpointId(*snapshot_id)):
            raise AssertionError(f"the metadata log cannot start at {snapshot_id}, which is not there")
        self.log.truncate_fully_and_start_at(snapshot_id.end_offset, now_ms=now_ms)
        self._drop_snapshots_below(snapshot_id)

    def _trim(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        """Files go at the next sync. A crash before leaves any number of them, the oldest gone first: the next start
        finds the snapshot here or an older one that is still followed by all the log.

        The active segment is rolled, so that the next trim can remove it.
        """
        start = snapshot_id.end_offset
        self.log.advance_high_watermark(start)
        self.log.maybe_increment_log_start_offset(start)
        if self.log.active_segment.base_offset < start:
            self.log.roll(now_ms)
        below = [segment for segment, following in pairwise(self.log.segments) if following.base_offset <= start]
        for segment in self.log.detach_segments(below):
            self._garbage.append(segment.remove_files)
        self._drop_snapshots_below(snapshot_id)

    def _drop_snapshots_below(self, kept: SnapshotId) -> None:
        for id in self._files.ids():
            if id.end_offset < kept.end_offset:
                self._garbage.append(partial(self._files.remove, id))

    def _finish_part(self, part: FinishPart) -> FetchedSnapshot | None:
        """In place durably, or gone. A crash before leaves a part, which the next start removes."""
        id, control, is_imported = CheckpointId(*part.snapshot_id), list[ControlRecord](), part.is_imported
        on_control = partial(_take_control, control, id.end_offset - 1)
        try:
            timestamp_ms = self._files.finish_part(id, part.size, on_control, is_imported=is_imported)
        except DamagedSnapshot:
            self._files.discard_part(id, is_imported=is_imported)
            return None
        return FetchedSnapshot(StoredSnapshot(part.snapshot_id, part.size, timestamp_ms), tuple(control))

    # Reading the log

    def read(self, offset: int, max_bytes: int, upper: int) -> LogSlice:
        """Whole batches from `offset` on that end by `upper`: `max_bytes` of them, but one at least.

        Of one segment at a time; `warm` a cold slice on another thread. Raises OffsetOutOfRange, LogDirFailure.
        """
        return self.log.read(offset, max_bytes, upper)

    def warm(self, found: LogSlice) -> None:
        """Brings a cold slice into memory; blocks."""
        self.log.warm(found)

    # Snapshots

    def read_snapshot_page(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes:
        """Bytes of a snapshot, fewer than `max_bytes` at its end. Blocks. Raises SnapshotNotFound, LogDirFailure."""
        with self._failing():
            try:
                return self._files.read(CheckpointId(*snapshot_id), position, max_bytes)
            except FileNotFoundError as error:
                raise SnapshotNotFound(str(snapshot_id)) from error

    def open_snapshot(self, snapshot_id: SnapshotId) -> RawSnapshotReader:
        """For loading it in pieces of whole batches; to be closed. Raises SnapshotNotFound, LogDirFailure."""
        with self._failing():
            try:
                return self._files.open(CheckpointId(*snapshot_id))
            except FileNotFoundError as error:
                raise SnapshotNotFound(str(snapshot_id)) from error

    def begin_snapshot(self, snapshot_id: SnapshotId) -> "RawSnapshotWriter":
        """For a snapshot generated here. Raises OSError, which is no failure of the log."""
        return RawSnapshotWriter(snapshot_id, self._files.begin(CheckpointId(*snapshot_id)))

    def close(self) -> None:
        """Syncs and closes. Raises LogDirFailure."""
        self.log.close(clean=True)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Refuses a failed log, and makes an OSError its failure."""
        if self.log.failure is not None:
            raise self.log.failure.again()
        try:
            yield
        except OSError as error:
            raise self.log.fail(error) from error


class RawSnapshotWriter:
    """Writes one snapshot aside, for one thread at a time. Everything blocks, and raises OSError: then `abandon`."""

    def __init__(self, snapshot_id: SnapshotId, writer: SnapshotFileWriter) -> None:
        self.snapshot_id = snapshot_id
        self._writer = writer

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._writer.size

    def append(self, data: bytes) -> None:
        """The next batches. Syncs now and then, so that `commit` has little left to do."""
        self._writer.append(data)

    def commit(self, timestamp_ms: int) -> StoredSnapshot:
        """Puts the snapshot in place, durably; before that a crash leaves none. `timestamp_ms` is the header's."""
        self._writer.commit()
        return StoredSnapshot(self.snapshot_id, self._writer.size, timestamp_ms)

    def abandon(self) -> None:
        """Leaves nothing of it."""
        self._writer.abandon()


def _take_control(into: list[ControlRecord], offset: int, batch: memoryview) -> None:
    into += read_control_records(batch, snapshot_offset=offset)
