"""The selection of the rows that a worker folds."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from protocol.ids import LeaderEpoch
from spark_jobs.metadata.byte_columns import Bools, numbers
from spark_jobs.metadata.log_rows import FROM_LOG, FROM_SNAPSHOT
from spark_jobs.metadata.summary import NO_EPOCH, Summary
from spark_jobs.metadata.transactions import TransactionPlan, plan


@dataclass(frozen=True, slots=True)
class FoldContext:
    """The context of a step, equal for all its sections.

    `start`: the end of the state before the step; rows below it are already folded. `end`: rows from there on wait, see
    `transactions.py`. `aborted`: ranges of offsets [first, end) to leave out. `snapshot_end`: the end of the snapshot
    that comes with the rows and replaces the state in every section, with its epoch and timestamp; -1 without a
    snapshot, or if the state is as new. `with_changes`: whether the step produces changes as rows.
    """

    start: int
    end: int
    aborted: tuple[tuple[int, int], ...] = ()
    snapshot_end: int = -1
    snapshot_epoch: LeaderEpoch = NO_EPOCH
    snapshot_timestamp_ms: int = -1
    with_changes: bool = False

    @property
    def replaces(self) -> bool:
        """Whether a snapshot replaces the state."""
        return self.snapshot_end >= 0

    @property
    def snapshot_place(self) -> tuple[int, LeaderEpoch, int]:
        """(offset, epoch, timestamp) of changes that the snapshot summarizes."""
        return self.snapshot_end - 1, self.snapshot_epoch, self.snapshot_timestamp_ms


def context_of(summary: Summary, *, start: int, with_changes: bool) -> tuple[FoldContext, TransactionPlan]:
    """Return the context for rows of this (merged) summary after a state that ends at `start`, and their transactions.

    The new state ends at `plan.stable_end`. Raises InvalidMetadata as `transactions.plan`.
    """
    snapshot_end = summary.snapshot_end if summary.snapshot_end > start else -1
    first = max(start, snapshot_end)
    transactions = plan(summary.markers, start=first, end=max(first, summary.end))
    context = FoldContext(
        start=start,
        end=transactions.stable_end,
        aborted=transactions.aborted,
        snapshot_end=snapshot_end,
        snapshot_epoch=summary.snapshot_epoch,
        snapshot_timestamp_ms=summary.snapshot_timestamp_ms,
        with_changes=with_changes,
    )
    return context, transactions


def rows_to_fold(rows: pa.Table, context: FoldContext) -> pa.Table:
    """Return the rows that change the state, including those of a snapshot."""
    offsets, origins = numbers(rows.column("offset")), numbers(rows.column("origin"))
    mine: Bools = (
        (origins == FROM_LOG) & (offsets >= max(context.start, context.snapshot_end)) & (offsets < context.end)
    )
    for first, end in context.aborted:
        mine &= (offsets < first) | (offsets >= end)
    if context.replaces:
        mine |= (origins == FROM_SNAPSHOT) & (offsets == context.snapshot_end - 1)
    return rows if mine.all() else rows.filter(pa.array(np.ascontiguousarray(mine)))
