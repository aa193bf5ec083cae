"""The fold of a section of topics: its state after some rows, and the changes."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_jobs.metadata.change_rows import LogPositions, changes_table, difference
from spark_jobs.metadata.fold_context import FoldContext, context_of, rows_to_fold
from spark_jobs.metadata.log_rows import FROM_SNAPSHOT, section_rows
from spark_jobs.metadata.registry import Registry, RegistryChange, RegistryResult, fold_registry
from spark_jobs.metadata.section_changes import no_changes
from spark_jobs.metadata.section_fold import SectionFold, SectionRows
from spark_jobs.metadata.section_state import empty_state

__all__ = [
    "FoldContext",
    "Registry",
    "RegistryChange",
    "RegistryResult",
    "SectionResult",
    "context_of",
    "fold_registry",
    "fold_section",
]


@dataclass(frozen=True, slots=True)
class SectionResult:
    """`state` as SECTION_STATE, `changes` as SECTION_CHANGES (empty unless requested). `records` were folded; they
    changed or removed `changed_records`, each counted again each time (the ratio of KIP-630).
    """

    state: pa.Table
    changes: pa.Table
    records: int
    changed_records: int


def fold_section(section: int, state: pa.Table | None, rows: pa.Table, context: FoldContext) -> SectionResult:
    """Fold the rows of a section into its state, ignoring rows of other sections and rows that wait.

    Rows may be in any order. Raises MalformedLog for a record that does not parse, UnknownRecord, and InvalidMetadata
    for a record that contradicts the state.
    """
    before = empty_state() if state is None else state
    concerned = section_rows(rows_to_fold(rows, context), section)
    if not len(concerned) and not context.replaces:
        return SectionResult(before, no_changes(), 0, 0)
    before, mine = before.combine_chunks(), SectionRows.of(concerned)
    count, changes, obsolete = len(mine), list[pa.Table](), 0
    if context.replaces:
        is_of_snapshot = mine.origins == FROM_SNAPSHOT
        after = SectionFold(empty_state(), mine.take(is_of_snapshot), is_snapshot=True).state()
        found, values, lives = difference(before, after)
        obsolete += found.obsolete
        if context.with_changes:
            changes.append(changes_table(found, values, lives, _place(context), is_summarized=True))
        before, mine = after, mine.take(~is_of_snapshot)
    if not len(mine):
        return SectionResult(before, _joined(changes), count, obsolete)
    fold = SectionFold(before, mine)
    if context.with_changes:
        changes.append(changes_table(fold.changes(), fold.values, fold.lives, mine.places))
    return SectionResult(fold.state(), _joined(changes), count, obsolete + fold.obsolete)


def _place(context: FoldContext) -> LogPositions:
    """Return the position of changes that a snapshot summarizes."""
    offset, epoch, timestamp_ms = (np.array([each]) for each in context.snapshot_place)
    return LogPositions(offset, epoch, timestamp_ms)


def _joined(changes: list[pa.Table]) -> pa.Table:
    some = [each for each in changes if len(each)]
    return pa.concat_tables(some).combine_chunks() if len(some) > 1 else some[0] if some else no_changes()
