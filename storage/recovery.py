"""Loading of a log directory, with the repair of everything a crash can leave behind (reference: LogLoader).

A crash may leave
 1. files of an unfinished deletion, cleaning or swap          -> undone or completed by their suffixes;
 2. an index without its segment, or a segment without index   -> the index is removed, or rebuilt;
 3. an unsynced tail: torn, with holes, with stale indexes, or missing while a later segment exists
                                                               -> every segment from the recovery point on is read
                                                                  whole; the log ends at the first invalid batch;
 4. snapshots and epochs that are older or newer than the log  -> those beyond the recovery point are rebuilt from the
                                                                  batches;
 5. epochs that begin above an older log start offset          -> earlier epochs are rebuilt from the batches.
After a clean shutdown only 1 and 2 are checked.

A crash cannot damage what was flushed: a log that ends below its checkpointed recovery point has lost records to rot
or to an operator (`LostRecords`). Such a log ends before the damage too, without the segments behind it: a log never
has a hole. The loss is reported, and the broker does not register as one that kept its records.
"""

from collections.abc import Callable, Iterable
from dataclasses import field
from itertools import pairwise
from typing import NamedTuple

from protocol.lazy_dataclass import lazy_dataclass
from protocol.records.batch import MAGIC, BatchHeader, crc_is_valid
from storage.config import LogConfig
from storage.directories.checkpoints import LEADER_EPOCH_FILE, LeaderEpochEntry
from storage.epochs import UNDEFINED_EPOCH, LeaderEpochs
from storage.errors import CorruptBatch, CorruptCheckpoint
from storage.files import FileSystem, join
from storage.interrupted_changes import numbered_files, settle_interrupted_changes
from storage.producer_state import ProducerState
from storage.replay import apply_to_producers, marker_of, replay_segment
from storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    LogSegment,
    ScannedBatch,
    segment_file_name,
)
from storage.segment_checks import (
    has_batch_beyond,
    has_index_entries,
    headers_between,
    indexes_lie_within,
    shows_compaction,
    tail_is_whole,
)
from storage.segments import Segments
from storage.snapshots import ProducerSnapshots
from storage.synced_records import SyncedRecords

_WHOLE_LOG = 2**63 - 1
_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class LogCheckpoint(NamedTuple):
    """The state of a log as its directory's checkpoints and clean-shutdown marker record it.

    `log_start_offset` is None where the checkpoint has none. `synced` is checked before a repair changes the batches,
    in a recovery that reads all of them (unclean, recovery point 0).
    """

    clean_shutdown: bool
    recovery_point: int
    log_start_offset: int | None
    synced: SyncedRecords | None = None


class LostRecords(NamedTuple):
    """Flushed records that recovery did not find: those with offsets in [first_offset, end_offset).

    `path` is the file that is damaged or ends too early, at byte `position`; the directory, without any segment.
    """

    first_offset: int
    end_offset: int
    path: str
    position: int


class LoadedLog(NamedTuple):
    segments: Segments
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerState
    snapshots: ProducerSnapshots
    recovery: "RecoveryReport"


@lazy_dataclass(slots=True)
class RecoveryReport:
    """The repairs of a recovery, for the operator."""

    scanned_bytes: int = 0
    cut_bytes: int = 0
    preallocated_bytes: int = 0
    """Bytes after the last batch that preallocation left; they are cut off too."""
    removed_segments: list[int] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)
    """Base offsets of segments below the recovery point whose index was lost or wrong, or whose last batch was torn."""
    lost: LostRecords | None = None


class LogLoader:
    """Single-use object: call `load` once.

    `may_start_below`: remote storage may have the offsets between a checkpointed log start offset and the first
    segment. OSError and SyncedRecordsLost pass through.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        checkpoint: LogCheckpoint,
        *,
        may_start_below: bool,
        now_ms: int,
        draw_jitter: Callable[[], int],
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._config = config
        self._clean, self._recovery_point, log_start_offset, self._synced = checkpoint
        self._flushed_end = self._recovery_point
        self._log_start_offset = log_start_offset or 0
        self._may_start_below = may_start_below and log_start_offset is not None
        self._now_ms = now_ms
        self._draw_jitter = draw_jitter
        self._recovery = RecoveryReport()
        self._epochs_are_lost = False

    def load(self) -> LoadedLog:
        files = self._settled_files()
        epochs = self._load_epochs()
        snapshots = ProducerSnapshots(self._fs, self._directory)
        bases = sorted(base for base, suffix in files if suffix == LOG_SUFFIX)
        if self._may_start_below and not self._epochs_are_lost:
            # The epochs are newer than the checkpoint; offsets without an epoch cannot be found in remote storage.
            known_from = epochs.entries[0].start_offset if epochs.entries else min(bases, default=0)
            self._log_start_offset = max(self._log_start_offset, known_from)
        if not self._clean:
            # Batches below the first segment cannot be replayed, and a crash cannot change the snapshot of them.
            snapshots.remove_above(self._recovery_point, but=bases[0] if bases else None)
        segments = self._open_segments(bases)
        segments, producers = self._recover(segments, epochs, snapshots)
        end = segments[-1].next_offset if segments else 0
        self._note_lost(segments, end)
        if not segments or end < self._log_start_offset:
            segments, end, producers = self._start_over(segments, epochs, snapshots)
        log_start = self._log_start_offset
        if not self._may_start_below:
            log_start = max(log_start, segments[0].base_offset)
        epochs.truncate_from_end(end + 1 if self._clean and self._recovery.lost is None else end)
        if not self._clean and not self._may_start_below:
            _restore_first_epochs(epochs, segments, log_start, end)
        epochs.truncate_from_start(log_start)
        if producers is None:
            producers = self._load_producers(segments, snapshots, end)
        recovery_point = end if self._clean else min(self._recovery_point, end)
        return LoadedLog(
            Segments(segments), log_start, end, recovery_point, epochs, producers, snapshots, self._recovery
        )

    def _settled_files(self) -> list[tuple[int, str]]:
        """Complete or undo unfinished changes and remove orphans; return the numbered files."""
        names = self._fs.list(self._directory)
        if any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
            settle_interrupted_changes(self._fs, self._directory)
            names = self._fs.list(self._directory)
        files = numbered_files(names)
        bases = {base for base, suffix in files if suffix == LOG_SUFFIX}
        for base, suffix in files:
            if suffix in _INDEX_SUFFIXES and base not in bases:
                self._fs.remove(join(self._directory, segment_file_name(base, suffix)))
        return files

    def _load_epochs(self) -> LeaderEpochs:
        """Load the epochs. An unreadable file makes recovery read all batches, which hold the epochs too."""
        path = join(self._directory, LEADER_EPOCH_FILE)
        try:
            return LeaderEpochs.load(self._fs, path)
        except CorruptCheckpoint:
            self._epochs_are_lost = True
            self._clean = False
            self._recovery_point = 0
            return LeaderEpochs(self._fs, path, [])

    # -- segments --------------------------------------------------------------------------------------------------

    def _open_segments(self, bases: list[int]) -> list[LogSegment]:
        segments = [self._open_segment(base) for base in bases]
        for segment, following in pairwise(segments):
            segment.next_offset = following.base_offset
            is_damaged = segment.base_offset in self._recovery.damaged
            if not self._clean and not is_damaged and not indexes_lie_within(segment):
                self._recovery.damaged.append(segment.base_offset)
        if segments and self._clean and not tail_is_whole(segments[-1]):
            self._recovery.damaged.append(segments[-1].base_offset)
        return segments

    def _open_segment(self, base: int) -> LogSegment:
        index_path = join(self._directory, segment_file_name(base, INDEX_SUFFIX))
        is_lost = not self._fs.exists(index_path)
        if is_lost:
            self._fs.open(index_path).close()
        segment = LogSegment.open(
            self._fs,
            self._directory,
            base,
            self._config,
            created_ms=self._now_ms,
            jitter_ms=self._draw_jitter(),
        )
        if not segment.size and has_index_entries(segment):
            segment.clear_indexes()  # a power failure has brought back entries of truncated batches
        if is_lost or not self._index_is_sane(segment):
            self._recovery.damaged.append(base)
        return segment

    def _index_is_sane(self, segment: LogSegment) -> bool:
        """Whether the offset index can belong to the segment.

        An index is not empty where it must have entries and, after a crash, points into the segment.
        """
        if not len(segment.offset_index.entries):
            return not has_batch_beyond(segment, self._config.index_interval_bytes)
        if self._clean:
            return True
        offset, position = segment.offset_index.last
        return position < segment.size and offset >= segment.base_offset

    def _recover(
        self, segments: list[LogSegment], epochs: LeaderEpochs, snapshots: ProducerSnapshots
    ) -> tuple[list[LogSegment], ProducerState | None]:
        """Read everything that may be damaged; return the remaining segments and, if the scan reached the end, the
        producers.
        """
        first_suspect = self._first_suspect(segments)
        self._recovery.damaged = [base for base in self._recovery.damaged if base < first_suspect]
        producers: ProducerState | None = None
        for number, segment in enumerate(segments):
            is_suspect = segment.base_offset >= first_suspect
            if not is_suspect and segment.base_offset not in self._recovery.damaged:
                producers = None
                continue
            if producers is None:
                producers = self._replayed(segments, snapshots, segment.base_offset)
            if is_suspect:
                # Epochs below the recovery point were saved, and compaction may have removed the batches that show
                # them.
                epochs.truncate_from_end(max(segment.base_offset, self._epochs_known_to))
            following = segments[number + 1] if number + 1 < len(segments) else None
            end = None if following is None else following.base_offset
            known_to = self._epochs_known_to if is_suspect else _WHOLE_LOG
            scan = _Scan(segment, epochs, known_to, self._log_start_offset, producers, self._synced)
            intact = scan.run(self._recovery, end)
            if following is None:
                self._check_end(segment)
            elif self._ends_log(segment, following, intact=intact, is_suspect=is_suspect):
                self._check_end(segment)
                self._drop(segments[number + 1 :], snapshots, segment.next_offset)  # first: a crash leaves no hole
                segments, following = segments[: number + 1], None
            scan.cut()
            if following is None:
                break
            segment.next_offset = following.base_offset
            segment.finish()
            if not is_suspect:
                segment.sync(indexes=True)  # no flush syncs files below the recovery point
            producers.end_offset = following.base_offset
            snapshots.take(producers)
        if segments and producers is None:
            segments[-1].resume()
        if not segments:
            self._check_end(None)
        self._sync_cuts(segments)
        return segments, producers

    @property
    def _epochs_known_to(self) -> int:
        """The offset below which the checkpointed epochs are complete."""
        if self._synced is None or self._epochs_are_lost:
            return self._recovery_point
        return max(self._recovery_point, self._synced.end)

    def _check_end(self, last: LogSegment | None) -> None:
        """Raise SyncedRecordsLost if the log must not end at the end of `last`; None is a log without segments."""
        if self._synced is not None:
            self._synced.check_end(self._directory, last)

    def _first_suspect(self, segments: list[LogSegment]) -> float:
        """Return the base offset of the segment with the last flushed offset; infinity after a clean shutdown.

        A segment that ends at the recovery point may have been finished after that flush, with its indexes unsynced.
        """
        if self._clean:
            return float("inf")
        below = [segment.base_offset for segment in segments if segment.base_offset < self._recovery_point]
        return below[-1] if below else -1

    def _ends_log(self, segment: LogSegment, following: LogSegment, *, intact: bool, is_suspect: bool) -> bool:
        """Whether the log ends with `segment`, because batches between it and `following` are missing.

        A segment of deleted records need not be complete.
        """
        if following.base_offset <= self._log_start_offset and not is_suspect:
            return False
        return not intact or (is_suspect and self._has_hole(segment, following))

    def _note_lost(self, segments: list[LogSegment], end: int) -> None:
        """Record a loss of flushed records. Records below the log start offset are deleted."""
        first = max(end, self._log_start_offset)
        if first < self._flushed_end:
            path = segments[-1].path(LOG_SUFFIX) if segments else self._directory
            size = segments[-1].size if segments else 0
            self._recovery.lost = LostRecords(first, self._flushed_end, path, size)

    def _has_hole(self, segment: LogSegment, following: LogSegment) -> bool:
        """Whether batches at the end of `segment` are missing although `following` exists.

        Compaction leaves gaps too: a segment with other signs of compaction may end early.
        """
        if segment.next_offset == following.base_offset:
            return False
        if segment.next_offset > following.base_offset or not self._config.is_compacted:
            return True
        return not shows_compaction(segment)

    def _drop(self, segments: list[LogSegment], snapshots: ProducerSnapshots, end: int) -> None:
        """Remove segments, the last first, so that a crash midway leaves no gap."""
        for segment in reversed(segments):
            self._recovery.removed_segments.append(segment.base_offset)
            segment.remove_files()
        snapshots.remove_above(end)
        self._fs.sync_directory(self._directory)

    def _sync_cuts(self, segments: list[LogSegment]) -> None:
        """Sync the end of the log, so that a power failure does not bring back what was cut off."""
        if (self._recovery.cut_bytes or self._recovery.preallocated_bytes) and segments:
            segments[-1].sync(indexes=False)

    def _start_over(
        self, segments: list[LogSegment], epochs: LeaderEpochs, snapshots: ProducerSnapshots
    ) -> tuple[list[LogSegment], int, ProducerState]:
        """Create an empty log at the log start offset, for a log without segments or one that ended below it.

        The segment is durable unless it starts at 0: the checkpoint of log start offsets names no log that starts with
        its first segment.
        """
        if segments or snapshots.offsets:
            self._drop(segments, snapshots, -1)
        epochs.clear()
        start = self._log_start_offset
        segment = LogSegment.create(
            self._fs, self._directory, start, self._config, created_ms=self._now_ms, jitter_ms=self._draw_jitter()
        )
        if start:
            segment.sync(indexes=False)
            self._fs.sync_directory(self._directory)
        producers = ProducerState()
        producers.end_offset = start
        return [segment], start, producers

    # -- producers -------------------------------------------------------------------------------------------------

    def _load_producers(self, segments: list[LogSegment], snapshots: ProducerSnapshots, end: int) -> ProducerState:
        """Load the producers from the newest snapshot; a cleanly closed log without snapshots has none, as in Kafka."""
        bases = {segment.base_offset for segment in segments}
        for offset in snapshots.offsets[:-1]:
            if offset not in bases:
                snapshots.remove(offset)
        snapshots.remove_above(end)
        if self._clean and not snapshots.offsets:
            producers = ProducerState()
            producers.end_offset = end
            return producers
        return self._replayed(segments, snapshots, end)

    def _replayed(self, segments: list[LogSegment], snapshots: ProducerSnapshots, end: int) -> ProducerState:
        """Return the state before `end`: the newest snapshot and the batches after it."""
        producers = snapshots.load_newest(end) or ProducerState()
        start = producers.end_offset
        for segment in segments:
            if segment.next_offset > start and segment.base_offset < end:
                replay_segment(producers, segment, start, end)
        producers.end_offset = end
        return producers


class _Scan:
    """A scan of one whole segment: checks every batch, rebuilds the indexes, and derives epochs and producers.

    The checksum of a batch does not cover its leader epoch. Below `known_to` the epoch must be the one in `epochs`;
    from there on epochs must not decrease, and new ones are added. Batches below the log start offset neither set
    epochs nor need the right one: a follower that was truncated there keeps them, and may have continued with a history
    of lower epochs.
    """

    def __init__(
        self,
        segment: LogSegment,
        epochs: LeaderEpochs,
        known_to: int,
        log_start_offset: int,
        producers: ProducerState,
        synced: SyncedRecords | None,
    ) -> None:
        self._segment = segment
        self._synced = synced
        self._epochs = epochs
        self._known_to = known_to
        self._log_start_offset = log_start_offset
        self._producers = producers
        self._expected = segment.base_offset
        self._has_rest = False

    def run(self, recovery: RecoveryReport, end: int | None) -> bool:
        """Scan the segment up to the first invalid batch; return whether no batch can be missing. `cut` must follow.

        `end` is the base offset of the following segment. The end of a preallocated file is no damage: a power failure
        may undo the cut at its end.
        """
        recovery.scanned_bytes += self._segment.size
        cut = self._segment.rebuild(self._accept)
        self._has_rest = cut.size > 0
        if cut.is_preallocated and (end is None or self._segment.next_offset == end):
            recovery.preallocated_bytes += cut.size
            return True
        recovery.cut_bytes += cut.size
        return cut.size == 0

    def cut(self) -> None:
        """Cut the segment before the first invalid batch, after the segments behind it were removed."""
        if self._has_rest:
            self._segment.cut()

    def _accept(self, batch: ScannedBatch) -> bool:
        header = batch.header
        if not self._is_plausible(header) or not crc_is_valid(batch.batch, 0, header.size):
            return False
        try:
            marker = marker_of(header, batch.batch)
        except CorruptBatch:
            return False
        if header.last_offset >= self._log_start_offset and not self._accept_epoch(header):
            return False
        aborted = apply_to_producers(self._producers, header, marker)
        if aborted is not None:
            self._segment.txn_index.append(aborted)
        self._expected = header.next_offset
        return True

    def _accept_epoch(self, header: BatchHeader) -> bool:
        """Whether a batch has the right leader epoch; records a new one. Batches of old clients have none."""
        epoch, offset, epochs = header.leader_epoch, header.base_offset, self._epochs
        if epoch == UNDEFINED_EPOCH:
            return True
        if offset < self._known_to:
            return epochs.epoch_for_offset(offset) in (epoch, None)
        if epoch > epochs.latest_epoch:
            epochs.assign(epoch, offset)
        return epoch == epochs.latest_epoch

    def _is_plausible(self, header: BatchHeader) -> bool:
        return (
            header.magic == MAGIC
            and header.base_offset >= self._expected
            and header.last_offset_delta >= 0
            and header.last_offset - self._segment.base_offset <= MAX_RELATIVE_OFFSET
            and (self._synced is None or self._synced.admits(header, self._expected))
        )


def _restore_first_epochs(epochs: LeaderEpochs, segments: Iterable[LogSegment], log_start: int, end: int) -> None:
    """Add the epochs of deleted records that a crash has brought back.

    A flush writes the epochs, a timer the checkpointed log start offset: after a crash the epochs may begin above the
    log start offset. A leader with such a log could not tell followers where their history diverges below that, and
    they would keep diverging records.
    """
    known_from = epochs.entries[0].start_offset if epochs.entries else end
    restored: list[LeaderEpochEntry] = []
    for header in headers_between(segments, log_start, known_from):
        if header.leader_epoch > (restored[-1].epoch if restored else UNDEFINED_EPOCH):
            restored.append(LeaderEpochEntry(header.leader_epoch, header.base_offset))
    if epochs.entries:
        epochs.restore_below(restored)
    else:
        epochs.replace(restored)
