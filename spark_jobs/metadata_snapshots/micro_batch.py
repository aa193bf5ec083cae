"""The processing of a micro-batch in `foreachBatch`: read the heads of packs, fold them in executors, commit.

The driver sees a summary of the rows and a line per section, never rows or state. Processing goes by offsets, so a
micro-batch may be repeated, whole or in part, or leave a gap: folded rows are skipped, and missing rows are read from
the log again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from protocol.ids import LeaderEpoch
from spark_jobs.metadata.fold_context import context_of
from spark_jobs.metadata.summary import (
    Summary,
    control_after,
    control_from_bytes,
    control_to_bytes,
    merge,
)
from spark_jobs.metadata_snapshots.changes import ChangeSink, FoldedRange
from spark_jobs.metadata_snapshots.commits import Commit, Since
from spark_jobs.metadata_snapshots.folding import FOLDED, Fold, Folded
from spark_jobs.metadata_snapshots.state_store import KEPT_COMMITS, StateStore
from spark_jobs.metadata_source.packed import HEAD, NOTHING

SMALL_ROWS: Final = 20_000
"""Up to this many rows are folded by one executor in one go: distributing them would take longer."""


class GapInLog(Exception):
    """The source left out records, so the fold must not continue."""


ReadAgain = Callable[[int, int], DataFrame]
"""Returns the PACKS of the log from one offset to before another."""

Guard = Callable[[], None]
"""Raises if another job owns the state."""


class MicroBatches:
    """A fold of micro-batches, one at a time; `commit` is the state after the last one."""

    def __init__(
        self, store: StateStore, begin: Commit, read_again: ReadAgain, sink: ChangeSink | None, guard: Guard
    ) -> None:
        """`begin` may be a commit of another store, which stays unchanged."""
        self.commit = begin
        self._store = store
        self._read_again = read_again
        self._sink = sink
        self._guard = guard
        self._own: deque[Commit] = deque(store.commits())
        if sink is not None:
            sink.begin(begin.end, begin.cluster_id)

    def take(self, packs: DataFrame) -> Summary:
        """Fold PACKS and commit. Raises the exceptions of the fold, wrapped by Spark, and of the store."""
        kept = packs.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            first, summary = _summary(kept)
            before = self.commit.end
            if before < first and summary.end > before and summary.snapshot_end <= before:
                missing = self._read_again(before, first)
                first_missing, of_missing = _summary(missing)
                if first_missing > before and of_missing.snapshot_end <= before:
                    raise GapInLog(f"the log continues at offset {first_missing} after offset {before}")
                self._step(missing.unionByName(kept), merge([of_missing, summary]))
            elif summary.end > before:
                self._step(kept, summary)
        finally:
            kept.unpersist()
        return summary

    def _step(self, packs: DataFrame, summary: Summary) -> None:
        before = self.commit
        context, transactions = context_of(summary, start=before.end, with_changes=self._sink is not None)
        if context.end <= before.end:
            return  # all rows belong to an open transaction
        span = FoldedRange(before.end, context.end, summary.epoch)
        fold = Fold(self._store, dict(before.files), context, span, self._sink)
        folded = self._folded(packs, summary, fold)
        if self._sink is not None:
            self._guard()
            self._sink.finish(span)
        control = control_after(control_from_bytes(before.control), summary.control, start=before.end)
        versions = [each.metadata_version for each in folded if each.metadata_version is not None]
        self.put(
            Commit(
                cluster_id=before.cluster_id,
                end=context.end,
                epoch=LeaderEpoch(summary.epoch),
                timestamp_ms=summary.timestamp_ms,
                open_since=transactions.open_since,
                control=control_to_bytes(control),
                files=_files_after({} if context.replaces else before.files, folded),
                metadata_version=versions[0] if versions else before.metadata_version,
                snapshot_records=before.snapshot_records,
                since=Since(
                    before.since.bytes + summary.frame_bytes,
                    before.since.changed + sum(each.changed for each in folded),
                ),
            )
        )

    def put(self, commit: Commit) -> None:
        """Write a commit as the newest one, and remove files that only old commits need."""
        self._guard()
        self._store.write_commit(commit)
        self.commit = commit
        if self._own and self._own[-1].name == commit.name:
            self._own.pop()
        self._own.append(commit)
        if len(self._own) > KEPT_COMMITS:
            old = [self._own.popleft() for _ in range(len(self._own) - KEPT_COMMITS)]
            self._store.remove_commits(old, self._own)

    def _folded(self, packs: DataFrame, summary: Summary, fold: Fold) -> list[Folded]:
        if not summary.sections:
            return []

        def one(packs: pa.Table) -> pa.Table:
            return fold.group(packs)

        def several(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return fold.several(batches)

        mine = packs.where(F.col("section") != HEAD)
        if summary.records <= SMALL_ROWS and not fold.context.replaces:
            done = mine.coalesce(1).mapInArrow(several, from_arrow_schema(FOLDED))
        else:
            done = mine.groupBy("section").applyInArrow(one, from_arrow_schema(FOLDED))
        return [Folded(**row.asDict()) for row in done.collect()]


def _files_after(before: Mapping[int, str], folded: Iterable[Folded]) -> dict[int, str]:
    files = dict(before)
    for each in folded:
        files.pop(each.section, None)
        if each.file is not None:
            files[each.section] = each.file
    return files


def _summary(packs: DataFrame) -> tuple[int, Summary]:
    """Return the first offset from the log (without one: the end), and the summary."""
    heads = packs.where(F.col("section") == HEAD).select("first", "content").collect()
    summary = merge(Summary.from_json(bytes(head["content"])) for head in heads)
    return min((head["first"] for head in heads if head["first"] != NOTHING), default=summary.end), summary
