"""Selection of logs to compact, and the state of their compaction. Source: Kafka's ``LogCleanerManager``.

Owns the cleaner checkpoints of all directories, the logs in progress, and the uncleanable logs. ``Cleaning`` is a pass
that its driver runs step by step.
"""

from collections.abc import Callable, Iterable

from protocol.lazy_dataclass import lazy_dataclass
from protocol.records.errors import MalformedRecords
from storage.compaction.compaction import CleanableRange, CompactionStats, SegmentSwap, compact
from storage.compaction.offset_map import OffsetMap
from storage.directories.checkpoints import CLEANER_OFFSET_FILE, TopicPartition, read_offsets, write_offsets
from storage.errors import CorruptBatch, CorruptCheckpoint, LogDirFailure
from storage.files import FileSystem, join, parent
from storage.log import Log
from storage.segment import LogSegment


@lazy_dataclass(frozen=True, slots=True)
class LogToClean:
    """A log with dirty segments. `ratio` is dirty cleanable bytes over clean and dirty cleanable bytes."""

    log: Log
    range: CleanableRange
    ratio: float
    is_overdue: bool

    @property
    def is_eligible(self) -> bool:
        return self.is_overdue or self.ratio > self.log.config.min_cleanable_dirty_ratio


class Cleaning:
    """One pass in progress. Call `step` until `is_done`; the log's thread must install the swaps that steps return.

    while not cleaning.is_done:
        swap = cleaning.step()                     # any thread
        if swap is not None:
            replaced = log.replace_segments(*swap) # the log's thread
    """

    def __init__(
        self,
        candidate: LogToClean,
        fs: FileSystem,
        offsets: OffsetMap,
        now_ms: int,
        make_durable: Callable[[Log], None],
    ) -> None:
        self.log = candidate.log
        self.stats = CompactionStats()
        """Statistics so far; final when the pass is done."""
        self.is_done = False
        self._make_durable = make_durable
        self._is_durable = False
        self._pass = compact(candidate.log, fs, candidate.range, offsets, self.stats, now_ms=now_ms)

    def step(self) -> SegmentSwap | None:
        """Process one batch, or finish a group of segments and return its swap.

        The first step makes the log durable: recovery after a crash must not distrust replaced segments. Raises
        CorruptBatch (then call `LogCleaner.fail`) and LogDirFailure, which end the pass.
        """
        try:
            return self._advance()
        except MalformedRecords as error:
            raise CorruptBatch(f"{self.log.name}: {error}") from error
        except OSError as error:
            raise self.log.fail(error) from error

    def _advance(self) -> SegmentSwap | None:
        if not self._is_durable:
            self._make_durable(self.log)
            self._is_durable = True
            return None
        try:
            return next(self._pass)
        except StopIteration:
            self.is_done = True
            return None

    def abort(self) -> None:
        """Drop the pass and its unfinished files; installed swaps stay."""
        self._pass.close()


class LogCleaner:
    """The state of compaction for all logs of a broker, with one pass at a time.

    `begin` and `is_in_progress` do no IO and run on the thread that owns the logs: retention, for example, cannot run
    between the check and the start of a pass. The other methods block, and run on one other thread.

    ``make_durable(log)`` flushes a log and writes the recovery-point checkpoint of its directory
    (``LogCheckpoints.make_durable``).
    """

    def __init__(
        self,
        fs: FileSystem,
        *,
        dedupe_buffer_bytes: int,
        make_durable: Callable[[Log], None],
        load_factor: float = 0.9,
    ) -> None:
        self._fs = fs
        self._make_durable = make_durable
        self._dedupe_buffer_bytes = dedupe_buffer_bytes
        self._load_factor = load_factor
        self._checkpoints: dict[str, dict[TopicPartition, int]] = {}
        self._in_progress: dict[TopicPartition, Cleaning] = {}
        self._uncleanable: set[TopicPartition] = set()
        self._unwritten: set[str] = set()
        """Directories whose checkpoint file still has removed logs."""

    def load_checkpoints(self, directories: Iterable[str]) -> None:
        """Read the cleaner checkpoint of each directory. A file that does not parse counts as empty."""
        for directory in directories:
            try:
                self._checkpoints[directory] = read_offsets(self._fs, join(directory, CLEANER_OFFSET_FILE))
            except CorruptCheckpoint:
                self._checkpoints[directory] = {}

    def next_candidate(self, logs: Iterable[Log], now_ms: int) -> LogToClean | None:
        """Return the eligible log with the highest ratio; None if there is none."""
        candidates = (self._candidate(log, now_ms) for log in logs if self._may_clean(log))
        eligible = [candidate for candidate in candidates if candidate is not None and candidate.is_eligible]
        return max(eligible, key=lambda candidate: candidate.ratio, default=None)

    def _may_clean(self, log: Log) -> bool:
        key = _key(log)
        return (
            log.config.is_compacted
            and log.failure is None
            and key not in self._in_progress
            and key not in self._uncleanable
        )

    def _candidate(self, log: Log, now_ms: int) -> LogToClean | None:
        cleanable = cleanable_range(log, self._checkpoint(log), now_ms)
        clean_bytes, dirty_bytes = _split_bytes(log, cleanable)
        if dirty_bytes == 0:
            return None
        ratio = dirty_bytes / (clean_bytes + dirty_bytes)
        return LogToClean(log, cleanable, ratio, _is_overdue(log, cleanable.first_dirty, now_ms))

    def begin(self, candidate: LogToClean, now_ms: int) -> Cleaning:
        """Begin a pass over the candidate; end it with `finish`, `fail` or `abort`."""
        offsets = OffsetMap.within(self._dedupe_buffer_bytes, self._load_factor)
        cleaning = Cleaning(candidate, self._fs, offsets, now_ms, self._make_durable)
        self._in_progress[_key(candidate.log)] = cleaning
        return cleaning

    def is_in_progress(self, log: Log) -> bool:
        """Whether a pass over the log is in progress; then retention must skip the log."""
        return _key(log) in self._in_progress

    def finish(self, cleaning: Cleaning) -> None:
        """Checkpoint durably how far the log is clean. Raises OSError."""
        assert cleaning.is_done, "the pass is not done"
        self._in_progress.pop(_key(cleaning.log), None)
        self._set_checkpoint(cleaning.log, cleaning.stats.end_offset)

    def fail(self, cleaning: Cleaning) -> None:
        """Mark a log that cannot be compacted as uncleanable until the next start."""
        self._in_progress.pop(_key(cleaning.log), None)
        self._uncleanable.add(_key(cleaning.log))
        cleaning.abort()

    def abort(self, log: Log) -> None:
        """End a pass over `log`, if there is one, before the log is truncated, deleted, or lost with its directory."""
        cleaning = self._in_progress.pop(_key(log), None)
        if cleaning is not None:
            cleaning.abort()

    def on_truncated(self, log: Log) -> None:
        """Lower the checkpoint to the base offset of the active segment after a truncation. Raises OSError."""
        if self._checkpoint(log) > log.active_segment.base_offset:
            self._set_checkpoint(log, log.active_segment.base_offset)

    def on_deleted(self, log: Log) -> None:
        """Drop the state of a deleted log. Raises OSError.

        Call `write_checkpoints` before a new log takes the partition's name.
        """
        self.abort(log)
        self._uncleanable.discard(_key(log))
        self.forget(parent(log.directory), _key(log))

    def forget(self, directory: str, partition: TopicPartition) -> None:
        """Drop the checkpoint of a partition's log in a directory. `write_checkpoints` makes that durable."""
        if self._checkpoints.get(directory, {}).pop(partition, None) is not None:
            self._unwritten.add(directory)

    def write_checkpoints(self) -> None:
        """Write the checkpoint of every directory from which logs were removed since. Raises LogDirFailure."""
        while self._unwritten:
            directory = self._unwritten.pop()
            try:
                self._write_checkpoint(directory)
            except OSError as error:
                raise LogDirFailure(directory, error) from error

    def _checkpoint(self, log: Log) -> int:
        return self._checkpoints.get(parent(log.directory), {}).get(_key(log), 0)

    def _set_checkpoint(self, log: Log, offset: int) -> None:
        directory = parent(log.directory)
        self._checkpoints.setdefault(directory, {})[_key(log)] = offset
        self._write_checkpoint(directory)

    def _write_checkpoint(self, directory: str) -> None:
        write_offsets(self._fs, join(directory, CLEANER_OFFSET_FILE), self._checkpoints[directory])


def _key(log: Log) -> TopicPartition:
    return TopicPartition(log.topic, log.partition)


def cleanable_range(log: Log, checkpoint: int, now_ms: int) -> CleanableRange:
    """Return the range from the first dirty offset to the base offset of the first uncleanable segment.

    Uncleanable are the active segment, a segment with an undecided transaction, one with a record younger than
    min.compaction.lag.ms, and one not yet copied to remote storage: compaction removes records in favour of later ones
    that only the local disk may have, and remote storage must be consistent by itself, with its transaction indexes, if
    the disk is lost.
    """
    start = log.local_log_start_offset
    first_dirty = checkpoint if start <= checkpoint <= log.log_end_offset else start
    bound = min(log.last_stable_offset, log.active_segment.base_offset)
    if log.is_copied_to_remote:
        bound = min(bound, log.highest_remote_offset + 1)
    for segment in _inactive_from(log, first_dirty):
        if segment.base_offset >= bound:
            break
        if _is_too_young(segment, log.config.min_compaction_lag_ms, now_ms):
            bound = segment.base_offset
            break
    containing = log.segments.floor(bound)
    return CleanableRange(first_dirty, bound if containing is None else containing.base_offset)


def _is_too_young(segment: LogSegment, min_lag_ms: int, now_ms: int) -> bool:
    return min_lag_ms > 0 and segment.largest_timestamp > now_ms - min_lag_ms


def _inactive_from(log: Log, offset: int) -> list[LogSegment]:
    """Return the inactive segments, from the one that contains `offset` on."""
    return [segment for segment in log.segments.from_offset(offset) if segment is not log.active_segment]


def _split_bytes(log: Log, cleanable: CleanableRange) -> tuple[int, int]:
    """Return the bytes of segments before the first dirty offset, and from there to the bound."""
    dirty_bases = {segment.base_offset for segment in _inactive_from(log, cleanable.first_dirty)}
    clean = dirty = 0
    for segment in log.segments:
        if segment.base_offset >= cleanable.first_uncleanable:
            break
        if segment.base_offset in dirty_bases:
            dirty += segment.size
        else:
            clean += segment.size
    return clean, dirty


def _is_overdue(log: Log, first_dirty: int, now_ms: int) -> bool:
    """Whether a record has waited for compaction longer than max.compaction.lag.ms."""
    firsts = (segment.first_timestamp for segment in _inactive_from(log, first_dirty))
    earliest = min((timestamp for timestamp in firsts if timestamp > 0), default=None)
    return earliest is not None and earliest < now_ms - log.config.max_compaction_lag_ms
