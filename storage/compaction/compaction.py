"""One compaction pass over one log: map the newest offset of each key, then rewrite the segments group by group.

A pass is a generator that yields between batches, so that its driver decides on the thread and the pace. It reads
inactive segments only and writes its own files only; the log stays unchanged. After a group of segments it yields a
``SegmentSwap``, which the owner of the log must install (``Log.replace_segments``) before the pass continues. Closing
the generator at any point removes its unfinished files.

After a crash: output is written with the suffix ``.cleaned`` and synced. Until the swap renames it, the start of the
log removes it; afterwards the start completes the swap.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple, Protocol

from protocol.lazy_dataclass import lazy_dataclass
from protocol.records.batch import BatchHeader, crc_is_valid
from protocol.records.reader import iter_records
from storage.compaction.offset_map import OffsetMap
from storage.compaction.rules import ALL, BatchRules, TransactionScan, last_data_of
from storage.config import LogConfig
from storage.epochs import LeaderEpochs
from storage.errors import CorruptBatch
from storage.files import FileSystem
from storage.index.transaction import AbortedTxn
from storage.producer_state import ProducerState
from storage.segment import CLEANED_SUFFIX, LOG_SUFFIX, MAX_RELATIVE_OFFSET, LogSegment, ScannedBatch
from storage.segments import Segments

_OFFSET_ENTRY_BYTES = 8
_TIME_ENTRY_BYTES = 12


class CompactableLog(Protocol):
    """The properties of a log that a pass needs."""

    @property
    def directory(self) -> str: ...

    @property
    def config(self) -> LogConfig: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def is_tiered(self) -> bool: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def segments(self) -> Segments: ...

    @property
    def producers(self) -> ProducerState: ...

    @property
    def epochs(self) -> LeaderEpochs: ...


class CleanableRange(NamedTuple):
    """Offsets [first_dirty, first_uncleanable) are to be mapped; everything below the end of the map is rewritten."""

    first_dirty: int
    first_uncleanable: int


class SegmentSwap(NamedTuple):
    """A replacement of the consecutive segments ``old`` by ``new``, whose synced files still end in ``.cleaned``."""

    new: LogSegment
    old: list[LogSegment]


@lazy_dataclass(slots=True)
class CompactionStats:
    """The statistics of a pass. ``end_offset`` is the first offset that stays dirty: the new checkpoint."""

    end_offset: int = 0
    mapped_keys: int = 0
    bytes_mapped: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    batches_read: int = 0
    batches_written: int = 0

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written."""
        return self.bytes_mapped + self.bytes_read + self.bytes_written


Pass = Generator[SegmentSwap | None, None, CompactionStats]


def compact(
    log: CompactableLog,
    fs: FileSystem,
    cleanable: CleanableRange,
    offsets: OffsetMap,
    stats: CompactionStats,
    *,
    now_ms: int,
) -> Pass:
    """Run a pass over ``log``; ``offsets`` must be empty, and its capacity limits the pass.

    Update ``stats`` and return them at the end. Raises CorruptBatch or MalformedRecords for a segment that cannot be
    compacted, OSError for a failing disk; swaps installed before stay.
    """
    segments = [segment for segment in log.segments if segment is not log.segments.active]
    aborted = _aborted_transactions(log.segments)
    yield from _map_keys(segments, cleanable, offsets, aborted, stats)
    stats.end_offset = end_offset = max(cleanable.first_dirty, offsets.latest_offset + 1)
    stats.mapped_keys = len(offsets)
    rules = BatchRules(
        offsets,
        TransactionScan(aborted),
        last_data_of(log.producers.entries.copy().values()),
        upper_bound=cleanable.first_uncleanable,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        final_below=0 if log.is_tiered else ALL,
        epoch_starts=frozenset(entry.start_offset for entry in log.epochs.entries),
    )
    rewritten = [segment for segment in segments if segment.base_offset < end_offset]
    for group in group_segments(rewritten, log.config, cleanable.first_uncleanable):
        yield from _rewrite(log, fs, group, rules, stats)
    return stats


def _aborted_transactions(segments: Segments) -> list[AbortedTxn]:
    """Return the aborted transactions of the whole log: the index entry lies with the marker, perhaps far above the
    data.
    """
    return [txn for segment in segments for txn in segment.txn_index.entries.copy()]


# -- mapping -----------------------------------------------------------------------------------------------------------


def _map_keys(
    segments: Sequence[LogSegment],
    cleanable: CleanableRange,
    offsets: OffsetMap,
    aborted: Sequence[AbortedTxn],
    stats: CompactionStats,
) -> Generator[None, None, None]:
    """Fill the map from the first dirty offset upwards until it is full or the cleanable range ends."""
    dirty = _dirty_segments(segments, cleanable)
    if not dirty:
        return
    transactions = TransactionScan(txn for txn in aborted if txn.last_offset >= dirty[0].base_offset)
    for segment, end in zip(dirty, [*(s.base_offset for s in dirty[1:]), cleanable.first_uncleanable], strict=True):
        for scanned in _batches_of(segment):
            stats.bytes_mapped += scanned.header.size
            if not map_batch(scanned, cleanable.first_dirty, offsets, transactions):
                return
            yield None
        offsets.latest_offset = max(offsets.latest_offset, end - 1)


def _dirty_segments(segments: Sequence[LogSegment], cleanable: CleanableRange) -> list[LogSegment]:
    below = [segment for segment in segments if segment.base_offset < cleanable.first_uncleanable]
    started = [index for index, segment in enumerate(below) if segment.base_offset <= cleanable.first_dirty]
    return below[max(started, default=0) :]


def map_batch(scanned: ScannedBatch, first_dirty: int, offsets: OffsetMap, transactions: TransactionScan) -> bool:
    """Map the keys of a batch from `first_dirty` on; return False when the map is full, perhaps in the middle of the
    batch.

    Raises MalformedRecords.
    """
    header = scanned.header
    if header.is_control:
        transactions.on_marker(header, scanned.batch)
    elif not transactions.is_aborted_data(header) and header.record_count and header.last_offset >= first_dirty:
        put = offsets.put
        for record in iter_records(scanned.batch):
            key, offset = record.key, record.offset
            if key is not None and offset >= first_dirty and not put(key, offset):
                return False
    if header.last_offset >= first_dirty:
        offsets.latest_offset = max(offsets.latest_offset, header.last_offset)
    return True


def _batches_of(segment: LogSegment) -> Iterator[ScannedBatch]:
    """Yield every batch of an inactive segment. Raises CorruptBatch for a bad checksum or trailing bytes: damaged bytes
    must not become keys, or get a new checksum.
    """
    position = 0
    for scanned in segment.scan(segment.size):
        if not crc_is_valid(scanned.batch, 0, scanned.header.size):
            raise CorruptBatch(f"the batch at offset {scanned.header.base_offset} has an invalid checksum")
        yield scanned
        position = scanned.position + scanned.header.size
    if position != segment.size:
        raise CorruptBatch(f"segment {segment.base_offset} holds no batch at position {position} of {segment.size}")


# -- rewriting ---------------------------------------------------------------------------------------------------------


def group_segments(segments: Sequence[LogSegment], config: LogConfig, upper_bound: int) -> list[list[LogSegment]]:
    """Group consecutive segments that fit into one: by size, by entries of each index, and by span of offsets."""
    groups: list[list[LogSegment]] = []
    ends = [*(segment.base_offset for segment in segments[1:]), upper_bound]
    for segment, end in zip(segments, ends, strict=True):
        if groups and _fits(groups[-1], segment, end, config):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(group: Sequence[LogSegment], segment: LogSegment, end: int, config: LogConfig) -> bool:
    together = [*group, segment]
    offset_entries = sum(len(member.offset_index.entries) for member in together)
    time_entries = sum(len(member.time_index.entries) for member in together)
    return (
        sum(member.size for member in together) <= config.segment_bytes
        and offset_entries * _OFFSET_ENTRY_BYTES <= config.segment_index_bytes
        and time_entries * _TIME_ENTRY_BYTES <= config.segment_index_bytes
        and end - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET
    )


def _rewrite(
    log: CompactableLog, fs: FileSystem, group: list[LogSegment], rules: BatchRules, stats: CompactionStats
) -> Generator[SegmentSwap | None, None, None]:
    cleaned = LogSegment.create(
        fs, log.directory, group[0].base_offset, log.config, created_ms=group[-1].created_ms, suffix=CLEANED_SUFFIX
    )
    try:
        for segment in group:
            for scanned in _batches_of(segment):
                copy_kept(scanned, cleaned, rules, stats)
                yield None
        _finish(fs, cleaned, group)
        yield SegmentSwap(cleaned, group)
    finally:
        if cleaned.suffix == CLEANED_SUFFIX:  # the swap was not installed
            cleaned.remove_files()


def copy_kept(scanned: ScannedBatch, cleaned: LogSegment, rules: BatchRules, stats: CompactionStats) -> None:
    """Append the remaining part of a batch, and the transaction that it aborts. Raises MalformedRecords, OSError."""
    header: BatchHeader = scanned.header
    stats.batches_read += 1
    stats.bytes_read += header.size
    kept = rules.apply(header, scanned.batch)
    if kept is None:
        return
    cleaned.append(kept.batch, header.last_offset, kept.max_timestamp)
    if kept.aborted is not None:
        cleaned.txn_index.append(kept.aborted)
    stats.batches_written += 1
    stats.bytes_written += len(kept.batch)


def _finish(fs: FileSystem, cleaned: LogSegment, group: Sequence[LogSegment]) -> None:
    """Complete and sync the temporary segment, with the modification time and the end of the last segment it
    replaces.
    """
    cleaned.finish()
    cleaned.next_offset = group[-1].next_offset
    fs.set_modified_ms(cleaned.path(LOG_SUFFIX), fs.modified_ms(group[-1].path(LOG_SUFFIX)))
    cleaned.sync(indexes=True)
