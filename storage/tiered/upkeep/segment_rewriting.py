"""One pass over the remote part of a log, step by step: keys are mapped, then runs of segments are rewritten.

It reads remote storage and writes files of its own into one directory, which must be nobody else's. What is published
of it, and in which order, is the caller's: `remote_compaction.py` says why that matters. Everything blocks.
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
from storage.tiered.catalog.segment_chain import Link
from storage.tiered.errors import CorruptRemoteData, RemoteResourceNotFound, RemoteStorageError
from storage.tiered.remote_storage import IndexKind, RemoteStorageManager, SegmentFiles
from storage.tiered.segments.batch_stream import BatchStream
from storage.tiered.segments.producers import producers_before
from storage.tiered.upkeep.remote_compaction import Plan, Run

DIRECTORY = "remote-log-compaction"
"""In the first log directory; emptied before each run."""
_SNAPSHOT = "producers"


class Abandoned(RemoteStorageError):
    """Nobody wants the pass any more."""


class Rewritten(NamedTuple):
    """A new segment, on this disk. `max_timestamp_ms` is -1 where there is none."""

    files: SegmentFiles
    size_bytes: int
    max_timestamp_ms: int
    txn_index_empty: bool


class RewritingTools(NamedTuple):
    """`is_wanted` is asked between batches, on whatever thread."""

    fs: FileSystem
    directory: str
    storage: RemoteStorageManager
    is_wanted: Callable[[], bool]


class RewritingPass:
    """`offsets` must be empty. `local_aborted` are those of the leader's disk, for markers that are not remote yet;
    `producers` are the live ones.

    All methods raise RemoteStorageError and its kinds. What they did before counts, so that the step
    that failed can be made again.
    """

    def __init__(
        self,
        plan: Plan,
        lineage: Lineage,
        config: LogConfig,
        offsets: OffsetMap,
        tools: RewritingTools,
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
        self._local_aborted = [txn for txn in local_aborted if txn.last_offset > plan.links[-1].last]
        self._producers = producers
        self._to_map = range(plan.links.count_below(plan.first_dirty), plan.taken)
        self._mapping = TransactionScan(())
        self._rewriting = self._pending = TransactionScan(())
        self._has_aborted = False

    @property
    def is_mapped(self) -> bool:
        """Whether keys are mapped as far as the plan or memory goes."""
        return self._has_aborted and not self._to_map

    @property
    def compacted_to(self) -> int:
        """Everything below is clean once all runs are published."""
        return max(self.plan.first_dirty, self._offsets.latest_offset + 1)

    def map_next(self) -> int:
        """Maps one segment; the bytes read."""
        if not self._has_aborted:
            self._learn_aborted()
        link = self.plan.links[self._to_map[0]]
        mapping, before = self._mapping.copy(), self.stats.bytes_mapped
        for scanned in self._batches(link):
            self.stats.bytes_mapped += scanned.header.size
            if not self._map(scanned, mapping):
                self._to_map = range(0)
                return self.stats.bytes_mapped - before
        self._offsets.latest_offset = max(self._offsets.latest_offset, link.last)
        self._mapping = mapping
        self._to_map = self._to_map[1:]
        return self.stats.bytes_mapped - before

    def _map(self, scanned: ScannedBatch, mapping: TransactionScan) -> bool:
        try:
            return map_batch(scanned, self.plan.first_dirty, self._offsets, mapping)
        except (MalformedRecords, MalformedBatch) as error:
            raise CorruptRemoteData(f"the batch at offset {scanned.header.base_offset}: {error}") from error

    def _learn_aborted(self) -> None:
        """Of the segments by their markers, so that each is told of by the segment that has its marker, and by no
        other: one whose marker is not shown would count for the producer's next transactions, too.
        """
        aborted = list(self._local_aborted)
        for link in self.plan.links:
            aborted += (txn for txn in self._aborted_of(link) if link.first <= txn.last_offset <= link.last)
        first_mapped = self.plan.links[self._to_map[0]].first if self._to_map else self.plan.end
        self._mapping = TransactionScan(txn for txn in aborted if txn.last_offset >= first_mapped)
        self._rewriting = TransactionScan(aborted)
        self._has_aborted = True

    def _aborted_of(self, link: Link) -> list[AbortedTxn]:
        if link.segment.txn_index_empty:
            return []
        try:
            data = self._tools.storage.read_index(link.segment, IndexKind.TRANSACTION)
        except RemoteResourceNotFound:  # there may be none; if the segment is gone, its records tell
            return []
        if len(data) % TXN_ENTRY.size:
            raise CorruptRemoteData(f"the transaction index of {link.segment.id} has {len(data)} bytes")
        return [AbortedTxn(*fields[1:]) for fields in TXN_ENTRY.iter_unpack(data)]

    def rewrite(self, run: Run, *, now_ms: int, final_below: int) -> Rewritten:
        """Makes the new segment of a run; `publish`ed, the pass goes on with `accept`."""
        try:
            self._clear_directory()
            return self._rewrite(run, now_ms, final_below)
        except OSError as error:
            raise RemoteStorageError(f"remote segments cannot be rewritten on this disk: {error}") from error

    def accept(self) -> None:
        """What was rewritten last is published."""
        self._rewriting = self._pending

    def close(self) -> None:
        """Leaves nothing on the disk, as far as that goes: what is left is removed by the next pass."""
        with contextlib.suppress(OSError):
            self._tools.fs.remove_tree(self._tools.directory)

    def _clear_directory(self) -> None:
        fs, directory = self._tools.fs, self._tools.directory
        if fs.exists(directory):
            fs.remove_tree(directory)
        fs.make_directory(directory)

    def _rewrite(self, run: Run, now_ms: int, final_below: int) -> Rewritten:
        self._pending = self._rewriting.copy()
        rules = BatchRules(
            self._offsets,
            self._pending,
            self._producers,
            upper_bound=run.end_offset + 1,
            now_ms=now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
            final_below=final_below,
        )
        new = LogSegment.create(
            self._tools.fs, self._tools.directory, run.start_offset, self._config, created_ms=now_ms
        )
        try:
            self._fill(new, run, rules)
            new.finish()
            return self._described(new, run)
        finally:
            new.close()

    def _fill(self, new: LogSegment, run: Run, rules: BatchRules) -> None:
        """Never empty, if the run is not: some tools take an object without bytes for one that is lost."""
        scanned: ScannedBatch | None = None
        try:
            for link in run.links:
                for scanned in self._batches(link):
                    copy_kept(scanned, new, rules, self.stats)
        except (MalformedRecords, MalformedBatch) as error:
            raise CorruptRemoteData(f"offsets {run.start_offset} to {run.end_offset}: {error}") from error
        if not new.size and scanned is not None:
            new.append(empty_batch(scanned.header), scanned.header.last_offset, scanned.header.max_timestamp)

    def _described(self, new: LogSegment, run: Run) -> Rewritten:
        end = run.end_offset + 1
        files = SegmentFiles(
            fs=self._tools.fs,
            log=new.path(LOG_SUFFIX),
            offset_index=new.path(INDEX_SUFFIX),
            time_index=new.path(TIME_INDEX_SUFFIX),
            transaction_index=new.path(TXN_INDEX_SUFFIX) if new.txn_index.entries else None,
            producer_snapshot=self._producer_snapshot(run),
            leader_epochs=encode_epochs(entry for entry in self.lineage.entries if entry.start_offset < end),
        )
        return Rewritten(files, new.size, new.max_timestamp_so_far.timestamp, not new.txn_index.entries)

    def _producer_snapshot(self, run: Run) -> str | None:
        """That of the last segment, brought up to where the run ends if that is within it."""
        end, last = run.end_offset + 1, run.links[-1].segment
        path = join(self._tools.directory, _SNAPSHOT)
        if last.end_offset + 1 == end:
            try:
                content = self._tools.storage.read_index(last, IndexKind.PRODUCER_SNAPSHOT)
            except RemoteResourceNotFound:
                return None
        else:
            others = (link.segment for link in self.plan.links)
            content = producers_before(end, last, others, self.lineage, self._tools.storage).encode()
        write_file(self._tools.fs, path, content, sync=False)
        return path

    def _batches(self, link: Link) -> Iterator[ScannedBatch]:
        """What a link stands for, batch by batch, each with a sound checksum."""
        stream = BatchStream(link.segment, 0, self._tools.storage.read_segment(link.segment, 0))
        with closing(stream):
            for header in stream:
                if not self._tools.is_wanted():
                    raise Abandoned
                if header.last_offset > link.last:
                    return
                if header.base_offset >= link.first:
                    yield ScannedBatch(0, header, memoryview(stream.batch()))
