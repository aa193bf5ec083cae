"""Opens the metadata log and its snapshots, and makes them agree (KIP-630, "Validation of Snapshot and Log").

The log's start is kept nowhere: it follows from what there is. After every start this holds, in this order of repair:

 1. Parts and deleted files, left by a fetch, a generation or a removal that did not end, are gone.
 2. The log was scanned whole, whatever the last stop was like, and ends before the first batch that is not right.
 3. The newest snapshot is whole. One that is damaged is set aside if nothing is lost by it: the log reaches its end,
    and the rest of the log is covered by an older snapshot or goes back to offset 0. Otherwise the node must not start.
 4. If the newest snapshot is ahead of the log, or ends where the log has another history, the log is emptied and begins
    at its end: snapshots are of committed records, a log's tail may be of none. This also finishes an installation that
    a crash interrupted between the snapshot's rename and the log's truncation.
 5. Every other snapshot lies within the log and its epoch is the log's there, or it is gone.
 6. If the first segment does not begin at 0, the log starts at the end of the oldest snapshot that is left; there is
    one, or the node must not start.
 7. All of this is on the disk.
"""

from dataclasses import dataclass, field
from functools import partial

from broker.quorum.control_records import read_control_records
from broker.quorum.identity import SnapshotId
from broker.quorum.settings import ControlRecord, EpochEntry, Recovered, StoredSnapshot
from protocol.primitives import METADATA_TOPIC_ID
from protocol.records.errors import MalformedRecords
from storage.config import LogConfig
from storage.errors import DamagedSnapshot
from storage.files import FileSystem
from storage.log import Log
from storage.log_snapshots import FORMATTED, CheckpointId, SnapshotFiles


class UnusableMetadataLog(Exception):
    """What is on the disk does not add up to a log that this node may go on with. The message is one sentence."""


@dataclass(slots=True)
class _Found:
    """The snapshots in place, judged one by one, the newest first."""

    whole: list[StoredSnapshot] = field(default_factory=list)
    damaged: list[tuple[CheckpointId, DamagedSnapshot]] = field(default_factory=list)
    control: list[ControlRecord] = field(default_factory=list)
    """Of the newest whole one."""


class MetadataRecovery:
    """One use: `run`. Blocks for a scan of the whole log."""

    def __init__(self, fs: FileSystem, directory: str, config: LogConfig, now_ms: int) -> None:
        self._fs = fs
        self._directory = directory
        self._now_ms = now_ms
        self.log = Log.open(fs, directory, config, now_ms=now_ms, clean_shutdown=False, topic_id=METADATA_TOPIC_ID)
        self._files = SnapshotFiles(fs, directory)

    def run(self) -> Recovered:
        """Mends, and says what there is then; the election is not looked at. Raises UnusableMetadataLog."""
        self._files.remove_leftovers()
        found = self._find()
        self._set_aside(found)
        if found.whole and self._is_behind(found.whole[0].id):
            self.log.truncate_fully_and_start_at(found.whole[0].id.end_offset, now_ms=self._now_ms)
        kept = self._keep_usable(found.whole)
        self._start_log(kept)
        self.log.flush()
        self._fs.sync_directory(self._directory)
        return self._recovered(kept, found.control)

    # Snapshots

    def _find(self) -> _Found:
        found = _Found()
        for id in reversed([id for id in self._files.ids() if id != FORMATTED]):
            try:
                timestamp_ms = self._judge(id, found)
            except DamagedSnapshot as error:
                found.damaged.append((id, error))
            else:
                found.whole.append(StoredSnapshot(SnapshotId(*id), self._files.size(id), timestamp_ms))
        return found

    def _judge(self, id: CheckpointId, found: _Found) -> int:
        """The newest is read from end to end: it is what this node and others will load."""
        if found.whole:
            return self._files.read_timestamp(id)
        control: list[ControlRecord] = []
        timestamp_ms = self._files.check(id, partial(_take_control, control, id.end_offset - 1))
        found.control = control
        return timestamp_ms

    def _set_aside(self, found: _Found) -> None:
        """What is damaged, if nothing is lost by it."""
        begin, end = self.log.segments.first.base_offset, self.log.log_end_offset
        is_covered = begin == 0 or any(snapshot.id.end_offset >= begin for snapshot in found.whole)
        for id, error in found.damaged:
            if not is_covered or id.end_offset > end:
                raise UnusableMetadataLog(
                    f"the metadata log in {self._directory} has offsets {begin} to {end} only, and the snapshot that "
                    f"it needs is damaged: {error}"
                )
        for id, _ in found.damaged:
            self._files.set_aside(id)

    def _keep_usable(self, whole: list[StoredSnapshot]) -> list[StoredSnapshot]:
        """Those that the log agrees with, in their order; the others are removed."""
        kept = [snapshot for snapshot in reversed(whole) if self._holds(snapshot.id)]
        for snapshot in whole:
            if snapshot not in kept:
                self._files.remove(CheckpointId(*snapshot.id))
        return kept

    def _is_behind(self, newest: SnapshotId) -> bool:
        """Whether the log ends before its newest snapshot does, or has another history there."""
        return newest.end_offset >= self.log.segments.first.base_offset and not self._holds(newest)

    def _holds(self, id: SnapshotId) -> bool:
        """Whether the log has the end of a snapshot, and the same history there."""
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
                f"the metadata log in {self._directory} begins at offset {begin}, and no snapshot tells what was before"
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
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            epochs=tuple(EpochEntry(*entry) for entry in log.epochs.entries),
            snapshots=tuple(kept),
            control=(*before, *self._logged_control(begin)),
            log_bytes=log.size_bytes,
        )

    def _formatted_control(self) -> list[ControlRecord]:
        """What formatting left for the first leader."""
        control: list[ControlRecord] = []
        if self._files.exists(FORMATTED):
            try:
                self._files.check(FORMATTED, partial(_take_control, control, -1))
            except DamagedSnapshot as error:
                raise UnusableMetadataLog(f"the voters that formatting left cannot be read: {error}") from error
        return control

    def _logged_control(self, begin: int) -> list[ControlRecord]:
        """By a walk over headers from `begin` on; only control batches are read and opened."""
        found: list[ControlRecord] = []
        for segment in self.log.segments.from_offset(begin):
            for position, header in segment.headers():
                if header.is_control and header.base_offset >= begin:
                    try:
                        found += read_control_records(segment.file.read(position, header.size))
                    except MalformedRecords as error:
                        raise UnusableMetadataLog(
                            f"the control batch at offset {header.base_offset} in {self._directory} is not understood: "
                            f"{error}"
                        ) from error
        return found


def _take_control(into: list[ControlRecord], offset: int, batch: memoryview) -> None:
    into += read_control_records(batch, snapshot_offset=offset)
