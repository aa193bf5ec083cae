"""The sink that writes the changes of each step of the fold to the tables.

Executors write large output to its final location, and stage small output; the driver joins the staged output to one
file per table before the step is committed. A repeated step writes the same files again. Enough adjacent small spans
are merged into one: first the merged file is put, then the others are removed; a listing of both shows by the names
which ones were merged (`spans.py`).

The tables belong to one output (`--out`): the folds of two jobs end their steps at different offsets, and each would
remove the files of the other. Jobs with the same output settle by the ownership of its state.

The tables may be ahead of the state: by a step whose commit failed, or by everything if the state was lost. The log
does not change, so the tables keep their rows, and rows folded again are skipped.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.metadata.registry import RegistryChange
from spark_jobs.metadata_snapshots.changes import FoldedRange as Step
from spark_jobs.metadata_tables.registry_tables import tables_of_registry
from spark_jobs.metadata_tables.schemas import TABLES
from spark_jobs.metadata_tables.section_tables import tables_of_section
from spark_jobs.metadata_tables.spans import MERGED, SMALL, FileSpan, covered, file_name, to_be_merged
from spark_jobs.metadata_tables.table_store import OWNER, STAGED, TableStore
from storage.tiered.loading.store_uri import StoreUri

STAGED_ROWS: Final = 20_000
"""Largest number of a section's rows that is staged: the driver holds 33 of these at most."""
SMALL_BYTES: Final = 4 * 1024 * 1024
"""Spans below this size are merged. The driver holds the merged rows, unpacked some ten times as large."""
MERGE_SPANS: Final = 16
_REGISTRY_PART: Final = "registry"


class TablesRefused(Exception):
    """The tables contradict the state, and writing would corrupt them or lose changes. The message is one sentence."""


@dataclass(slots=True)
class TablesSink:
    """A `ChangeSink`, which can be pickled. `out` is the output of the job; `reached` is the end of the tables, from
    `begin` on.
    """

    store: TableStore
    out: StoreUri
    reached: int = field(default=0, init=False)

    def begin(self, end: int, cluster_id: str) -> None:
        """Begin a run. Raises TablesRefused."""
        self._require_owner()
        self._require_cluster(cluster_id)
        self.reached = self.store.end() or 0
        if self.reached < end:
            raise TablesRefused(
                f"the tables in {self.store.uri} end at offset {self.reached}, but the state ends at {end}:"
                " use another --out, or other --tables and remove the old _state."
            )
        self.store.delete(self.store.staged(""))
        for table in TABLES:
            files = list(self.store.files(table))
            unfinished = [file for file in files if file.span.end > self.reached]
            self.store.delete(file.name for file in [*unfinished, *covered(set(files) - set(unfinished))])

    def _require_owner(self) -> None:
        own = _identity(self.out)
        if self.store.owner() is None:
            self.store.claim(own)
        owner = self.store.owner()
        if owner != own:
            raise TablesRefused(
                f"the tables in {self.store.uri} belong to the job that writes to {owner}, not to {own}: use other"
                f" --tables, or remove {OWNER} there after the other job has ended for good."
            )

    def _require_cluster(self, cluster_id: str) -> None:
        found = self.store.cluster_id()
        if found is None:
            self.store.set_cluster_id(cluster_id)
        elif found != cluster_id:
            raise TablesRefused(
                f"the tables in {self.store.uri} belong to cluster {found}, but the brokers belong to {cluster_id}."
            )

    def section(self, span: Step, section: int, changes: pa.Table) -> None:
        """Write the changes of a section. Raises TablesRefused."""
        news = changes
        if span.start < self.reached:
            news = changes.filter(pc.field("offset") >= self.reached)
            if pc.any(news.column("is_summarized")).as_py():
                raise self._gap(span)
        self._put(span, f"{section:02d}", tables_of_section(news))

    def registry(self, span: Step, changes: Sequence[RegistryChange]) -> None:
        """Write the changes of the registry. Raises TablesRefused."""
        news = [change for change in changes if change.offset >= self.reached]
        if span.start < self.reached and any(change.is_summarized for change in news):
            raise self._gap(span)
        self._put(span, _REGISTRY_PART, tables_of_registry(news))

    def _gap(self, span: Step) -> TablesRefused:
        return TablesRefused(
            f"the tables in {self.store.uri} end at offset {self.reached}, the state at {span.start}, and the log in"
            " between was deleted, so that the changes are unknown: use other --tables."
        )

    def finish(self, span: Step) -> None:
        if span.end <= self.reached:
            return
        here = self._news(span)
        self._remove_other_attempts(here)
        by_table: dict[str, list[str]] = defaultdict(list)
        staged = self.store.staged(f"{here}/")
        for name in staged:
            by_table[name.split("/")[2]].append(name)
        for table, names in by_table.items():
            self.store.write(file_name(table, here, SMALL), self._joined(table, names))
        self.store.set_end(span.end)
        self.reached = span.end
        self.store.delete(staged)
        for table in by_table:
            self._merge(table)

    def _news(self, span: Step) -> FileSpan:
        """Return the span that a step adds to the tables."""
        return FileSpan(max(span.start, self.reached), span.end)

    def _put(self, span: Step, part: str, tables: Mapping[str, pa.Table]) -> None:
        here = self._news(span)
        for table, rows in tables.items():
            if len(rows) > STAGED_ROWS:
                self.store.write(file_name(table, here, part), rows)
            else:
                self.store.write(f"{STAGED}{here}/{table}/{part}.parquet", rows)

    def _remove_other_attempts(self, span: FileSpan) -> None:
        """Remove the files of a failed attempt of the step, which may have another end."""
        for table in TABLES:
            self.store.delete(file.name for file in self.store.files(table, span.start) if file.span != span)

    def _merge(self, table: str) -> None:
        for run in to_be_merged(self.store.files(table), SMALL_BYTES, MERGE_SPANS):
            whole = FileSpan(run[0].span.start, max(file.span.end for file in run))
            name = file_name(table, whole, f"{MERGED}{max(file.level for file in run) + 1}")
            self.store.write(name, self._joined(table, [file.name for file in run]))
            self.store.delete(file.name for file in run)

    def _joined(self, table: str, names: Sequence[str]) -> pa.Table:
        """Join files by offset, in their order."""
        tables = [self.store.read(name).cast(TABLES[table]) for name in sorted(names)]
        first = TABLES[table].names[0]
        return pa.concat_tables(tables).combine_chunks().sort_by(first)


def _identity(out: StoreUri) -> str:
    """Return the text that identifies an output: the same for a relative and an absolute path."""
    return os.path.abspath(out.directory) if out.directory else f"{out.endpoint or ''} {out}".strip()
