"""The metadata log on this node's disk: batches, snapshots, and the quorum's log operations on them.

Threads. One thread at a time owns the log: for `perform` of Append, TruncateTo, StartAt and Trim, for `read`, and for
the properties. `sync` may run on another thread meanwhile, and so may calls that concern snapshots only, one at a time
per snapshot: `perform` of WritePart, FinishPart and DiscardPart, `begin_snapshot` and its writer, pages and readers.

`MetadataRecovery` repairs the state after a crash at any point; each operation documents what survives. An OSError
fails the log (LogDirFailure, from then on at every call), except an error while writing a snapshot generated here.
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
from broker.runtime.quorum.synced_end import SyncedEndFile
from protocol.records.batch import iter_headers
from storage.config import LogConfig
from storage.errors import DamagedSnapshot, LogDirFailure, UnexpectedOffset
from storage.files import FileSystem
from storage.local_log import LogSlice
from storage.log import Log
from storage.log_snapshots import CheckpointId, FileRawSnapshotReader, SnapshotFiles
from storage.log_snapshots import FileRawSnapshotWriter as SnapshotFileWriter


class FetchedSnapshot(NamedTuple):
    """A valid installed snapshot, and its changes of kraft.version and voters."""

    stored: StoredSnapshot
    control: tuple[ControlRecord, ...]


class SnapshotNotFound(Exception):
    """The snapshot is not, or no longer, on disk."""


class RaftMetadataLog:
    """`recovered` is the content of the disk at start, without the election state, which is in another file."""

    def __init__(
        self, fs: FileSystem, directory: str, log: Log, synced_end: SyncedEndFile, recovered: Recovered
    ) -> None:
        self.directory = directory
        self.recovered = recovered
        self.log = log
        self._synced_end = synced_end
        self._has_marks = True
        """Whether the file system stores attributes of files."""
        self._files = SnapshotFiles(fs, directory)
        self._obsolete_files: deque[Callable[[], None]] = deque()

    @classmethod
    def open(cls, fs: FileSystem, directory: str, config: LogConfig, now_ms: int) -> "RaftMetadataLog":
        """Recover the log in `directory`, or create an empty log. Blocks for a time proportional to the log's size.

        Raise UnusableMetadataLog or InvalidQuorumState, with the reason why the node must not start, or LogDirFailure.
        """
        try:
            recovery = MetadataRecovery(fs, directory, config, now_ms)
            recovered = recovery.run()
        except OSError as error:
            raise LogDirFailure(directory, error) from error
        return cls(fs, directory, recovery.log, recovery.synced_end, recovered)

    # Properties

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def size_bytes(self) -> int:
        """The size of all segments."""
        return self.log.size_bytes

    @property
    def snapshots(self) -> SnapshotFiles:
        """The snapshot files, for reading."""
        return self._files

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark for readers of the log. Return whether it rose."""
        return self.log.advance_high_watermark(offset)

    # Log operations of the quorum

    def perform(self, operation: LogOperation, now_ms: int) -> FetchedSnapshot | None:
        """Execute one operation. FinishPart returns the snapshot, or None if the part is not a valid snapshot.

        Append and WritePart write to the page cache; Trim renames a few files; DiscardPart deletes one. TruncateTo,
        StartAt and FinishPart block for fsyncs, FinishPart also for reading the whole snapshot. Raise LogDirFailure,
        and UnexpectedOffset for an append that does not continue the log.
        """
        with self._failing_log():
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
        """Fsync the log, delete trimmed files, and return the end offset on disk. Blocks.

        The offset covers at least all operations before the call. Call `save_synced_end` afterwards, if it is due.
        """
        with self._failing_log():
            self._has_marks = self._has_marks and self.log.active_segment.file.set_attribute(self._synced_end.mark())
        end_offset = self.log.flush()
        with self._failing_log():
            self._synced_end.advance(end_offset)
            while self._obsolete_files:
                self._obsolete_files.popleft()()
        return end_offset

    @property
    def must_save_synced_end(self) -> bool:
        """Whether `save_synced_end` is due: some fsyncs of the log have passed."""
        return self._synced_end.is_due

    def save_synced_end(self) -> None:
        """Fsync the record of the synced end, on the thread of `sync`. Blocks."""
        with self._failing_log():
            self._synced_end.save()

    def _append(self, operation: Append, now_ms: int) -> None:
        """Append batches. A crash before the sync leaves any number of them, in order."""
        expected = self.log.log_end_offset
        for _, header in iter_headers(operation.batches):
            if header.base_offset != expected:
                raise UnexpectedOffset(expected, header.base_offset)
            expected = header.next_offset
        if expected != operation.end_offset:
            raise UnexpectedOffset(operation.end_offset, expected)
        self.log.append_as_follower(operation.batches, now_ms=now_ms)

    def _truncate_to(self, offset: int, now_ms: int) -> None:
        """Truncate durably. A crash leaves a log that ends between `offset` and its previous end."""
        if offset < self.log_start_offset:
            raise AssertionError(f"truncation to offset {offset} is below the log start offset {self.log_start_offset}")
        self._synced_end.lower(offset)
        self.log.truncate_to(offset, now_ms=now_ms)

    def _start_at(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        """Replace the log durably. A crash leaves a part of the old log and the snapshot; the next start then begins
        the log at the snapshot, which is newer or contradicts the old log.
        """
        if not self._files.exists(CheckpointId(*snapshot_id)):
            raise AssertionError(f"the metadata log cannot start at {snapshot_id}: the snapshot is not on disk")
        self._synced_end.lower(0)
        self.log.truncate_fully_and_start_at(snapshot_id.end_offset, now_ms=now_ms)
        self._drop_snapshots_below(snapshot_id)

    def _trim(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        """Raise the log start offset; the next sync deletes the files, the oldest first.

        After a crash any number of files remains: the next start finds this snapshot, or an older one with all of the
        log after it. The active segment is rolled, so that the next trim can delete it.
        """
        start = snapshot_id.end_offset
        self.log.advance_high_watermark(start)
        self.log.maybe_increment_log_start_offset(start)
        if self.log.active_segment.base_offset < start:
            self.log.roll(now_ms)
        below = [segment for segment, following in pairwise(self.log.segments) if following.base_offset <= start]
        for segment in self.log.detach_segments(below):
            self._obsolete_files.append(segment.remove_files)
        self._drop_snapshots_below(snapshot_id)

    def _drop_snapshots_below(self, kept: SnapshotId) -> None:
        for id in self._files.ids():
            if id.end_offset < kept.end_offset:
                self._obsolete_files.append(partial(self._files.remove, id))

    def _finish_part(self, part: FinishPart) -> FetchedSnapshot | None:
        """Install a valid part durably, or delete it. A crash leaves a part, which the next start deletes."""
        id, control, is_imported = CheckpointId(*part.snapshot_id), list[ControlRecord](), part.is_imported
        on_control = partial(_collect_control, control, id.end_offset - 1)
        try:
            timestamp_ms = self._files.finish_part(id, part.size, on_control, is_imported=is_imported)
        except DamagedSnapshot:
            self._files.discard_part(id, is_imported=is_imported)
            return None
        return FetchedSnapshot(StoredSnapshot(part.snapshot_id, part.size, timestamp_ms), tuple(control))

    # Reading the log

    def read(self, offset: int, max_bytes: int, upper: int) -> LogSlice:
        """Return whole batches of one segment from `offset` up to `upper`: `max_bytes`, but at least one batch.

        Call `warm` for a cold slice on another thread. Raise OffsetOutOfRange, LogDirFailure.
        """
        return self.log.read(offset, max_bytes, upper)

    def warm(self, found: LogSlice) -> None:
        """Read a cold slice into memory. Blocks."""
        self.log.warm(found)

    # Snapshots

    def read_snapshot_page(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes:
        """Return up to `max_bytes` of a snapshot. Blocks. Raise SnapshotNotFound, LogDirFailure."""
        with self._failing_log():
            try:
                return self._files.read(CheckpointId(*snapshot_id), position, max_bytes)
            except FileNotFoundError as error:
                raise SnapshotNotFound(str(snapshot_id)) from error

    def open_snapshot(self, snapshot_id: SnapshotId) -> FileRawSnapshotReader:
        """Open a snapshot for reading whole batches. Raise SnapshotNotFound, LogDirFailure."""
        with self._failing_log():
            try:
                return self._files.open(CheckpointId(*snapshot_id))
            except FileNotFoundError as error:
                raise SnapshotNotFound(str(snapshot_id)) from error

    def begin_snapshot(self, snapshot_id: SnapshotId) -> "RawSnapshotWriter":
        """Create the writer of a generated snapshot. Raise OSError, which does not fail the log."""
        return RawSnapshotWriter(snapshot_id, self._files.begin(CheckpointId(*snapshot_id)))

    def close(self) -> None:
        """Sync and close the log. Raise LogDirFailure."""
        try:
            self.log.close(clean=True)
            if self.log.failure is None:
                with self._failing_log():
                    self._synced_end.advance(self.log.recovery_point)
        finally:
            self._synced_end.close()

    @contextmanager
    def _failing_log(self) -> Iterator[None]:
        """Raise the failure of a failed log, and fail the log on an OSError."""
        if self.log.failure is not None:
            raise self.log.failure.again()
        try:
            yield
        except OSError as error:
            raise self.log.fail(error) from error


class RawSnapshotWriter:
    """Writes one snapshot to a temporary file, on one thread at a time. All methods block; after an OSError call
    `abandon`.
    """

    def __init__(self, snapshot_id: SnapshotId, writer: SnapshotFileWriter) -> None:
        self.snapshot_id = snapshot_id
        self._writer = writer

    @property
    def size(self) -> int:
        """The number of bytes written."""
        return self._writer.size

    def append(self, data: bytes) -> None:
        """Append batches. Syncs periodically, so that the sync in `commit` is short."""
        self._writer.append(data)

    def commit(self, timestamp_ms: int) -> StoredSnapshot:
        """Install the snapshot durably. `timestamp_ms` is from its header. A crash before leaves no snapshot."""
        self._writer.commit()
        return StoredSnapshot(self.snapshot_id, self._writer.size, timestamp_ms)

    def abandon(self) -> None:
        """Delete the temporary file."""
        self._writer.abandon()


def _collect_control(into: list[ControlRecord], offset: int, batch: memoryview) -> None:
    into += read_control_records(batch, snapshot_offset=offset)
