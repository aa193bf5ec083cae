"""One compaction pass over the remote part of a log, step by step: map keys, then rewrite groups of segments.

The pass reads remote storage and writes files into its own directory. The caller publishes the results;
`remote_compaction.py` explains why the order matters. Everything blocks.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from protocol.records.builder import empty_batch
from protocol.records.errors import MalformedBatch, MalformedRecords
from storage.compaction.compaction import CompactionStats, copy_kept, map_batch
from storage.compaction.offset_map import OffsetMap
from storage.compaction.rules import BatchRules, LastData, TransactionScan
from storage.config import LogConfig
from storage.files import FileSystem, join, write_file
from storage.index.transaction import ENTRY as TXN_ENTRY
from storage.index.transaction import AbortedTxn
from storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, LogSegment, ScannedBatch
from storage.tiered.catalog.lineage import Lineage, encode_epochs
from storage.tiered.catalog.segment_spans import SegmentSpan
from storage.tiered.errors import CorruptRemoteData, RemoteResourceNotFound, RemoteStorageError
from storage.tiered.lifecycle.remote_compaction import CompactionPlan, SegmentGroup
from storage.tiered.remote_storage import IndexKind, RemoteStorageManager, SegmentFiles
from storage.tiered.segments.batch_stream import BatchStream
from storage.tiered.segments.producers import producers_before

DIRECTORY = "remote-log-compaction"
"""Directory name in the first log directory; emptied before each group."""
_SNAPSHOT = "producers"


class PassCancelled(RemoteStorageError):
    """The pass was cancelled."""


class RewrittenSegment(NamedTuple):
    """A new segment on the local disk. `max_timestamp_ms` is -1 if it has no timestamps."""

    files: SegmentFiles
    size_bytes: int
    max_timestamp_ms: int
    txn_index_empty: bool


class CompactionPassTools(NamedTuple):
    """Collaborators of a pass. `is_wanted` is called between batches, on any thread."""

    fs: FileSystem
    directory: str
    storage: RemoteStorageManager
    is_wanted: Callable[[], bool]


class CompactionPass:
    """A pass; `offsets` must be empty. `local_aborted` are the aborted transactions of the leader's disk, for markers
    that are not remote yet; `producers` are the live ones.

    All methods raise RemoteStorageError and its subclasses. Completed steps count, so a failed step can be repeated.
    """

    def __init__(
        self,
        plan: CompactionPlan,
        lineage: Lineage,
        config: LogConfig,
        offsets: OffsetMap,
        tools: CompactionPassTools,
        *,
        local_aborted: Iterable[AbortedTxn],
        producers: Mapping[int, LastData],
    ) -> None:
        self.plan = plan
        self.lineage = lineage
        self.stats = CompactionStats()
        self._config = config
        self._offsets = offsets
        self._tools = tools
        self._local_aborted = [txn for txn in local_aborted if txn.last_offset > plan.spans[-1].last]
        self._producers = producers
        self._to_map = range(plan.spans.count_below(plan.first_dirty), plan.taken)
        self._mapping = TransactionScan(())
        self._rewriting = self._pending = TransactionScan(())
        self._has_aborted = False

    @property
    def is_mapped(self) -> bool:
        """Whether keys are mapped as far as the plan or memory allows."""
        return self._has_aborted and not self._to_map

    @property
    def compacted_to(self) -> int:
        """The offset below which everything is clean once all groups are published."""
        return max(self.plan.first_dirty, self._offsets.latest_offset + 1)

    def map_next(self) -> int:
        """Map one segment; return the bytes read."""
        if not self._has_aborted:
            self._learn_aborted()
        span = self.plan.spans[self._to_map[0]]
        mapping, before = self._mapping.copy(), self.stats.bytes_mapped
        for scanned in self._batches(span):
            self.stats.bytes_mapped += scanned.header.size
            if not self._map(scanned, mapping):
                self._to_map = range(0)
                return self.stats.bytes_mapped - before
        self._offsets.latest_offset = max(self._offsets.latest_offset, span.last)
        self._mapping = mapping
        self._to_map = self._to_map[1:]
        return self.stats.bytes_mapped - before

    def _map(self, scanned: ScannedBatch, mapping: TransactionScan) -> bool:
        try:
            return map_batch(scanned, self.plan.first_dirty, self._offsets, mapping)
        except (MalformedRecords, MalformedBatch) as error:
            raise CorruptRemoteData(f"the batch at offset {scanned.header.base_offset}: {error}") from error

    def _learn_aborted(self) -> None:
        """Read the aborted transactions of the segments. Each belongs to the segment with its marker only: without its
        marker it would apply to the producer's next transactions, too.
        """
        aborted = list(self._local_aborted)
        for span in self.plan.spans:
            aborted += (txn for txn in self._aborted_of(span) if span.first <= txn.last_offset <= span.last)
        first_mapped = self.plan.spans[self._to_map[0]].first if self._to_map else self.plan.end
        self._mapping = TransactionScan(txn for txn in aborted if txn.last_offset >= first_mapped)
        self._rewriting = TransactionScan(aborted)
        self._has_aborted = True

    def _aborted_of(self, span: SegmentSpan) -> list[AbortedTxn]:
        if span.segment.txn_index_empty:
            return []
        try:
            data = self._tools.storage.read_index(span.segment, IndexKind.TRANSACTION)
        except RemoteResourceNotFound:  # no index, or the segment is gone and reading its records fails
            return []
        if len(data) % TXN_ENTRY.size:
            raise CorruptRemoteData(f"the transaction index of {span.segment.id} has {len(data)} bytes")
        return [AbortedTxn(*fields[1:]) for fields in TXN_ENTRY.iter_unpack(data)]

    def rewrite(self, group: SegmentGroup, *, now_ms: int, final_below: int) -> RewrittenSegment:
        """Make the new segment of a group; call `accept` after it was published."""
        try:
            self._clear_directory()
            return self._rewrite(group, now_ms, final_below)
        except OSError as error:
            raise RemoteStorageError(f"the local disk cannot hold rewritten remote segments: {error}") from error

    def accept(self) -> None:
        """Accept the segment rewritten last, after it was published."""
        self._rewriting = self._pending

    def close(self) -> None:
        """Remove all files if possible; the next pass removes the rest."""
        with contextlib.suppress(OSError):
            self._tools.fs.remove_tree(self._tools.directory)

    def _clear_directory(self) -> None:
        fs, directory = self._tools.fs, self._tools.directory
        if fs.exists(directory):
            fs.remove_tree(directory)
        fs.make_directory(directory)

    def _rewrite(self, group: SegmentGroup, now_ms: int, final_below: int) -> RewrittenSegment:
        self._pending = self._rewriting.copy()
        rules = BatchRules(
            self._offsets,
            self._pending,
            self._producers,
            upper_bound=group.end_offset + 1,
            now_ms=now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
            final_below=final_below,
        )
        new = LogSegment.create(
            self._tools.fs, self._tools.directory, group.start_offset, self._config, created_ms=now_ms
        )
        try:
            self._fill(new, group, rules)
            new.finish()
            return self._described(new, group)
        finally:
            new.close()

    def _fill(self, new: LogSegment, group: SegmentGroup, rules: BatchRules) -> None:
        """Fill the new segment. A non-empty group never gives an empty one: some tools take an empty object for a lost
        one.
        """
        scanned: ScannedBatch | None = None
        try:
            for span in group.spans:
                for scanned in self._batches(span):
                    copy_kept(scanned, new, rules, self.stats)
        except (MalformedRecords, MalformedBatch) as error:
            raise CorruptRemoteData(f"offsets {group.start_offset} to {group.end_offset}: {error}") from error
        if not new.size and scanned is not None:
            new.append(empty_batch(scanned.header), scanned.header.last_offset, scanned.header.max_timestamp)

    def _described(self, new: LogSegment, group: SegmentGroup) -> RewrittenSegment:
        end = group.end_offset + 1
        files = SegmentFiles(
            fs=self._tools.fs,
            log=new.path(LOG_SUFFIX),
            offset_index=new.path(INDEX_SUFFIX),
            time_index=new.path(TIME_INDEX_SUFFIX),
            transaction_index=new.path(TXN_INDEX_SUFFIX) if new.txn_index.entries else None,
            producer_snapshot=self._producer_snapshot(group),
            leader_epochs=encode_epochs(entry for entry in self.lineage.entries if entry.start_offset < end),
        )
        return RewrittenSegment(files, new.size, new.max_timestamp_so_far.timestamp, not new.txn_index.entries)

    def _producer_snapshot(self, group: SegmentGroup) -> str | None:
        """Write the producer snapshot: the last segment's, updated to the group's end if that lies within it."""
        end, last = group.end_offset + 1, group.spans[-1].segment
        path = join(self._tools.directory, _SNAPSHOT)
        if last.end_offset + 1 == end:
            try:
                content = self._tools.storage.read_index(last, IndexKind.PRODUCER_SNAPSHOT)
            except RemoteResourceNotFound:
                return None
        else:
            others = (span.segment for span in self.plan.spans)
            content = producers_before(end, last, others, self.lineage, self._tools.storage).encode()
        write_file(self._tools.fs, path, content, sync=False)
        return path

    def _batches(self, span: SegmentSpan) -> Iterator[ScannedBatch]:
        """Yield the batches of a span with verified checksums."""
        stream = BatchStream(span.segment, 0, self._tools.storage.read_segment(span.segment, 0))
        with closing(stream):
            for header in stream:
                if not self._tools.is_wanted():
                    raise PassCancelled
                if header.last_offset > span.last:
                    return
                if header.base_offset >= span.first:
                    yield ScannedBatch(0, header, memoryview(stream.batch()))
