"""One step of the fold, as it runs in executors: the rows of a section onto the state of that section, file by file.

Pure apart from the store. How rows come to the executor that has their section is Spark's affair, see `micro_batch.py`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from spark_jobs.metadata.log_rows import LOG_ROWS, REGISTRY, split_by_section
from spark_jobs.metadata.sections import FoldContext, fold_registry, fold_section
from spark_jobs.metadata_snapshots.changes import ChangeSink, Span
from spark_jobs.metadata_snapshots.state_store import StateStore

TARGET: Final = "target"
"""The column with the section that a row is folded in; a row that concerns several comes to each."""

FOLDED: Final = pa.schema(
    [
        pa.field("section", pa.int32(), nullable=False),
        pa.field("file", pa.string()),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("changed", pa.int64(), nullable=False),
        pa.field("metadata_version", pa.int32()),
    ]
)
"""What an executor reports of a section; no file of one that is empty now."""


class Folded(NamedTuple):
    """A row of FOLDED."""

    section: int
    file: str | None
    records: int
    changed: int
    metadata_version: int | None = None


@dataclass(frozen=True, slots=True)
class Fold:
    """A step for all sections; `files` is the state before it. May be pickled."""

    store: StateStore
    files: Mapping[int, str]
    context: FoldContext
    span: Span
    sink: ChangeSink | None = None

    def one(self, section: int, rows: pa.Table) -> Folded:
        """Fold one section and write its file. Raises what the fold raises, and the store."""
        return self._registry(rows) if section == REGISTRY else self._section(section, rows)

    def group(self, rows: pa.Table) -> pa.Table:
        """The same for rows with a TARGET, all of one section."""
        return _table([self.one(rows.column(TARGET)[0].as_py(), rows.select(LOG_ROWS.names))])

    def several(self, batches: Iterator[pa.RecordBatch], sections: tuple[int, ...]) -> Iterator[pa.RecordBatch]:
        """The same for all rows of a small step at once, dealt out to `sections` here."""
        rows = pa.Table.from_batches([_as_log_rows(batch) for batch in batches], LOG_ROWS)
        yield from _table([self.one(section, mine) for section, mine in split_by_section(rows, sections)]).to_batches()

    def _section(self, section: int, rows: pa.Table) -> Folded:
        file = self.files.get(section)
        before = None if file is None else self.store.read_section(file)
        result = fold_section(section, before, rows, self.context)
        if self.sink is not None:
            self.sink.section(self.span, section, result.changes)
        after = self.store.write_section(section, self.span.end, result.state) if len(result.state) else None
        return Folded(section, after, result.records, result.changed_records)

    def _registry(self, rows: pa.Table) -> Folded:
        file = self.files.get(REGISTRY)
        result = fold_registry(None if file is None else self.store.read(file), rows, self.context)
        if self.sink is not None:
            self.sink.registry(self.span, result.changes)
        after = self.store.write_registry(self.span.end, result.state)
        return Folded(REGISTRY, after, result.records, result.changed_records, int(result.registry.version))


def _as_log_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same with the schema's own words on what may be null, which Spark forgets."""
    return pa.RecordBatch.from_arrays(batch.select(LOG_ROWS.names).columns, schema=LOG_ROWS)


def _table(folded: list[Folded]) -> pa.Table:
    return pa.Table.from_pylist([each._asdict() for each in folded], FOLDED)
