"""Recovery of the metadata log and its snapshots to a consistent state (KIP-630, "Validation of Snapshot and Log").

The log start offset is not stored; it follows from the files. After every start the following holds, in the order of
repair:

 1. Temporary and deleted files of an unfinished fetch, generation or deletion are removed.
 2. The whole log was scanned, even after a clean shutdown, and ends before the first invalid batch. If records that
    were synced would be cut off, or have other leader epochs than the checkpointed ones, the node must not start: it
    would vote with a shorter log than it has acknowledged, and a committed record could be lost with a majority alive.
    This holds below a snapshot as well, because the batches after the damage would be lost with it.
 3. The newest snapshot is valid. A damaged snapshot is renamed if no record is lost: the log reaches its end offset,
    and an older snapshot or offset 0 covers the rest of the log. Otherwise the node must not start.
 4. If the newest snapshot is ahead of the log, or the log has another epoch at its end offset, the log is emptied and
    starts there: snapshots contain committed records only, the end of a log may be uncommitted. This also completes an
    installation that a crash interrupted between the rename of the snapshot and the truncation of the log.
 5. Every other snapshot ends within the log with the log's epoch, or is deleted.
 6. If the first segment does not start at 0, the log starts at the end offset of the oldest remaining snapshot. Without
    a snapshot the node must not start.
 7. All of this is on disk.
"""

from dataclasses import field
from functools import partial
from typing import Final

from broker.quorum.control_records import read_control_records
from broker.quorum.identity import SnapshotId
from broker.quorum.settings import ControlRecord, EpochEntry, Recovered, StoredSnapshot
from broker.runtime.quorum.state_file import QuorumStateFile
from broker.runtime.quorum.synced_end import SyncedEndFile
from protocol.ids import LeaderEpoch, Offset
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import METADATA_TOPIC_ID
from protocol.records.errors import MalformedRecords
from storage.config import LogConfig
from storage.errors import DamagedSnapshot, SyncedRecordsLost
from storage.files import FileSystem
from storage.log import Log
from storage.log_snapshots import FORMATTED, CheckpointId, SnapshotFiles
from storage.synced_records import SyncedRecords

_WAY_OUT: Final = (
    "the disk has lost records that this node acknowledged, so replace the metadata directory as after the loss of "
    "a disk, and let the node join again"
)


class UnusableMetadataLog(Exception):
    """The files are inconsistent, so the node must not start. The message is one sentence."""


@lazy_dataclass(slots=True)
class _CheckedSnapshots:
    """The snapshots on disk by validity, the newest first."""

    whole: list[StoredSnapshot] = field(default_factory=list)
    damaged: list[tuple[CheckpointId, DamagedSnapshot]] = field(default_factory=list)
    control: list[ControlRecord] = field(default_factory=list)
    """The control records of the newest valid snapshot."""


class MetadataRecovery:
    """Single-use object: call `run` once. Blocks for a scan of the whole log.

    Raise UnusableMetadataLog or InvalidQuorumState.
    """

    def __init__(self, fs: FileSystem, directory: str, config: LogConfig, now_ms: int) -> None:
        self._fs = fs
        self._directory = directory
        self._now_ms = now_ms
        self.synced_end = SyncedEndFile(fs, directory)
        self.log = self._open_log(config)
        self._files = SnapshotFiles(fs, directory)

    def run(self) -> Recovered:
        """Repair the files and return the result, without the election state. Raise UnusableMetadataLog."""
        self._files.remove_leftovers()
        found = self._check_snapshots()
        self._rename_damaged(found)
        if found.whole and self._is_behind(found.whole[0].id):
            self.synced_end.lower(0)
            self.log.truncate_fully_and_start_at(found.whole[0].id.end_offset, now_ms=self._now_ms)
        kept = self._keep_usable(found.whole)
        self._start_log(kept)
        self.synced_end.replace(self.log.flush())
        self._fs.sync_directory(self._directory)
        return self._recovered(kept, found.control)

    # Synced records

    def _open_log(self, config: LogConfig) -> Log:
        """Open the log without its torn end. Raise UnusableMetadataLog if synced records are damaged."""
        try:
            return Log.open(
                self._fs,
                self._directory,
                config,
                now_ms=self._now_ms,
                clean_shutdown=False,
                topic_id=METADATA_TOPIC_ID,
                synced=self._synced_records(),
            )
        except SyncedRecordsLost as error:
            raise UnusableMetadataLog(f"{error}: {_WAY_OUT}") from error

    def _synced_records(self) -> SyncedRecords:
        """Return the facts about the log that the other files record, as far as this release wrote the log last."""
        election, is_foreign = QuorumStateFile(self._fs, self._directory).read_with_origin()
        end = self.synced_end.read()
        if is_foreign:
            return SyncedRecords()
        return SyncedRecords(end, None if election is None else election.epoch)

    # Snapshots

    def _check_snapshots(self) -> _CheckedSnapshots:
        found = _CheckedSnapshots()
        for id in reversed([id for id in self._files.ids() if id != FORMATTED]):
            try:
                timestamp_ms = self._check(id, found)
            except DamagedSnapshot as error:
                found.damaged.append((id, error))
            else:
                found.whole.append(
                    StoredSnapshot(
                        SnapshotId(Offset(id.end_offset), LeaderEpoch(id.epoch)), self._files.size(id), timestamp_ms
                    )
                )
        return found

    def _check(self, id: CheckpointId, found: _CheckedSnapshots) -> int:
        """Check a snapshot. The newest is read completely, because this node and others will load it."""
        if found.whole:
            return self._files.read_timestamp(id)
        control: list[ControlRecord] = []
        timestamp_ms = self._files.check(id, partial(_collect_control, control, id.end_offset - 1))
        found.control = control
        return timestamp_ms

    def _rename_damaged(self, found: _CheckedSnapshots) -> None:
        """Rename damaged snapshots if no record is lost. Raise UnusableMetadataLog otherwise."""
        begin, end = self.log.segments.first.base_offset, self.log.log_end_offset
        is_covered = begin == 0 or any(snapshot.id.end_offset >= begin for snapshot in found.whole)
        for id, error in found.damaged:
            if not is_covered or id.end_offset > end:
                raise UnusableMetadataLog(
                    f"the metadata log in {self._directory} has only offsets {begin} to {end}, and the snapshot that "
                    f"it needs is damaged: {error}"
                )
        for id, _ in found.damaged:
            self._files.set_aside(id)

    def _keep_usable(self, whole: list[StoredSnapshot]) -> list[StoredSnapshot]:
        """Return the snapshots that match the log, in the order of their ids, and delete the others."""
        kept = [snapshot for snapshot in reversed(whole) if self._matches(snapshot.id)]
        for snapshot in whole:
            if snapshot not in kept:
                self._files.remove(CheckpointId(*snapshot.id))
        return kept

    def _is_behind(self, newest: SnapshotId) -> bool:
        """Whether the log ends before its newest snapshot, or has another epoch at its end offset."""
        return newest.end_offset >= self.log.segments.first.base_offset and not self._matches(newest)

    def _matches(self, id: SnapshotId) -> bool:
        """Whether the log contains the snapshot's end offset with the same epoch."""
        epochs, begin = self.log.epochs, self.log.segments.first.base_offset
        if id.end_offset == begin:
            return not epochs.entries or epochs.entries[0].epoch >= id.epoch
        return (
            begin < id.end_offset <= self.log.log_end_offset and epochs.epoch_for_offset(id.end_offset - 1) == id.epoch
        )

    # The log

    def _start_log(self, kept: list[StoredSnapshot]) -> None:
        begin = self.log.segments.first.base_offset
        if begin == 0:
            return
        if not kept:
            raise UnusableMetadataLog(
                f"the metadata log in {self._directory} starts at offset {begin}, "
                "without a snapshot of the records before"
            )
        start = min(snapshot.id.end_offset for snapshot in kept)
        self.log.advance_high_watermark(start)
        self.log.maybe_increment_log_start_offset(start)

    def _recovered(self, kept: list[StoredSnapshot], control: list[ControlRecord]) -> Recovered:
        log = self.log
        begin = kept[-1].id.end_offset if kept else log.log_start_offset
        before = control if kept else self._formatted_control()
        return Recovered(
            election=None,
            log_start_offset=Offset(log.log_start_offset),
            log_end_offset=Offset(log.log_end_offset),
            epochs=tuple(
                EpochEntry(LeaderEpoch(entry.epoch), Offset(entry.start_offset)) for entry in log.epochs.entries
            ),
            snapshots=tuple(kept),
            control=(*before, *self._logged_control(begin)),
            log_bytes=log.size_bytes,
        )

    def _formatted_control(self) -> list[ControlRecord]:
        """Return the control records of the 0-0 snapshot, which formatting wrote."""
        control: list[ControlRecord] = []
        if self._files.exists(FORMATTED):
            try:
                self._files.check(FORMATTED, partial(_collect_control, control, -1))
            except DamagedSnapshot as error:
                raise UnusableMetadataLog(
                    f"the 0-0 snapshot in {self._directory}, which formatting wrote, cannot be read: {error}"
                ) from error
        return control

    def _logged_control(self, begin: int) -> list[ControlRecord]:
        """Return the control records from `begin` on. Reads batch headers, and the content of control batches only."""
        found: list[ControlRecord] = []
        for segment in self.log.segments.from_offset(begin):
            for position, header in segment.headers():
                if header.is_control and header.base_offset >= begin:
                    try:
                        found += read_control_records(segment.file.read(position, header.size))
                    except MalformedRecords as error:
                        raise UnusableMetadataLog(
                            f"the control batch at offset {header.base_offset} in {self._directory} cannot be decoded: "
                            f"{error}"
                        ) from error
        return found


def _collect_control(into: list[ControlRecord], offset: int, batch: memoryview) -> None:
    into += read_control_records(batch, snapshot_offset=offset)
