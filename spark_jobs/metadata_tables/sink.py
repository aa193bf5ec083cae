"""Takes the changes of each step of the fold into the tables.

Executors write what is large where it belongs, and stage what is small; the driver makes of all that is small one file
a table before the step is committed. A step that comes again writes the same files again. When enough small spans have
come together, they are merged into one: first the merged file is put, then the others go, and whoever lists both sees
by their names what was merged (`spans.py`).

The tables may be further than the state: by a step whose commit failed, or by all there is where the state was lost.
What happened is in the log and does not change, so what they have stays, and what is folded again is left out.
"""

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
from spark_jobs.metadata_tables.table_store import STAGED, TableStore

STAGED_ROWS: Final = 20_000
"""Up to so many rows of a section are staged: 33 of them are what the driver holds at most."""
SMALL_BYTES: Final = 4 * 1024 * 1024
"""Spans below are merged sooner or later. The driver holds what it merges, unpacked some ten times as large."""
MERGE_SPANS: Final = 16
_REGISTRY_PART: Final = "registry"


class TablesRefused(Exception):
    """The tables do not go with the state, and to write into them would make them wrong or lose some. One sentence."""


@dataclass(slots=True)
class TablesSink:
    """A `ChangeSink`. May be pickled. `reached` is where the tables end, from `begin` on."""

    store: TableStore
    reached: int = field(default=0, init=False)

    def begin(self, end: int, cluster_id: str) -> None:
        """Raises TablesRefused."""
        self._require_cluster(cluster_id)
        self.reached = self.store.end() or 0
        if self.reached < end:
            raise TablesRefused(
                f"the tables in {self.store.uri} end at offset {self.reached} and the state at {end}:"
                " begin both anew, with another --out or with other --tables and without the old _state."
            )
        self.store.delete(self.store.staged(""))
        for table in TABLES:
            files = list(self.store.files(table))
            unfinished = [file for file in files if file.span.end > self.reached]
            self.store.delete(file.name for file in [*unfinished, *covered(set(files) - set(unfinished))])

    def _require_cluster(self, cluster_id: str) -> None:
        found = self.store.cluster_id()
        if found is None:
            self.store.set_cluster_id(cluster_id)
        elif found != cluster_id:
            raise TablesRefused(
                f"the tables in {self.store.uri} are of cluster {found}, and the brokers are of {cluster_id}."
            )

    def section(self, span: Step, section: int, changes: pa.Table) -> None:
        """Raises TablesRefused."""
        news = changes
        if span.start < self.reached:
            news = changes.filter(pc.field("offset") >= self.reached)
            if pc.any(news.column("is_summarized")).as_py():
                raise self._gap(span)
        self._put(span, f"{section:02d}", tables_of_section(news))

    def registry(self, span: Step, changes: Sequence[RegistryChange]) -> None:
        """Raises TablesRefused."""
        news = [change for change in changes if change.offset >= self.reached]
        if span.start < self.reached and any(change.is_summarized for change in news):
            raise self._gap(span)
        self._put(span, _REGISTRY_PART, tables_of_registry(news))

    def _gap(self, span: Step) -> TablesRefused:
        return TablesRefused(
            f"the tables in {self.store.uri} end at offset {self.reached} and the state at {span.start}, and the log in"
            " between is gone, so that nobody knows what has changed since: begin with other --tables."
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
        """What a step adds to the tables."""
        return FileSpan(max(span.start, self.reached), span.end)

    def _put(self, span: Step, part: str, tables: Mapping[str, pa.Table]) -> None:
        here = self._news(span)
        for table, rows in tables.items():
            if len(rows) > STAGED_ROWS:
                self.store.write(file_name(table, here, part), rows)
            else:
                self.store.write(f"{STAGED}{here}/{table}/{part}.parquet", rows)

    def _remove_other_attempts(self, span: FileSpan) -> None:
        """A step that failed may have reached further, or less far."""
        for table in TABLES:
            self.store.delete(file.name for file in self.store.files(table, span.start) if file.span != span)

    def _merge(self, table: str) -> None:
        for run in to_be_merged(self.store.files(table), SMALL_BYTES, MERGE_SPANS):
            whole = FileSpan(run[0].span.start, max(file.span.end for file in run))
            name = file_name(table, whole, f"{MERGED}{max(file.level for file in run) + 1}")
            self.store.write(name, self._joined(table, [file.name for file in run]))
            self.store.delete(file.name for file in run)

    def _joined(self, table: str, names: Sequence[str]) -> pa.Table:
        """By offset, as they came."""
        tables = [self.store.read(name).cast(TABLES[table]) for name in sorted(names)]
        first = TABLES[table].names[0]
        return pa.concat_tables(tables).combine_chunks().sort_by(first)
