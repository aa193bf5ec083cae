"""One step of the fold in executors: the rows of a section applied to the state of that section, file by file.

The only IO is the store. Spark brings the rows of a section to one executor (`micro_batch.py`).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from spark_jobs.metadata.log_rows import REGISTRY
from spark_jobs.metadata.sections import FoldContext, fold_registry, fold_section
from spark_jobs.metadata_snapshots.changes import ChangeSink, FoldedRange
from spark_jobs.metadata_snapshots.state_store import StateStore
from spark_jobs.metadata_source.packed import unpacked

FOLDED: Final = pa.schema(
    [
        pa.field("section", pa.int32(), nullable=False),
        pa.field("file", pa.string()),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("changed", pa.int64(), nullable=False),
        pa.field("metadata_version", pa.int32()),
    ]
)
"""An executor's report of a section; an empty section has no file."""


class Folded(NamedTuple):
    """A row of FOLDED."""

    section: int
    file: str | None
    records: int
    changed: int
    metadata_version: int | None = None


@dataclass(frozen=True, slots=True)
class Fold:
    """A step for all sections; `files` is the state before it. Can be pickled."""

    store: StateStore
    files: Mapping[int, str]
    context: FoldContext
    span: FoldedRange
    sink: ChangeSink | None = None

    def one(self, section: int, rows: pa.Table) -> Folded:
        """Fold one section and write its file. Raises the exceptions of the fold and the store."""
        return self._registry(rows) if section == REGISTRY else self._section(section, rows)

    def group(self, packs: pa.Table) -> pa.Table:
        """Fold PACKS of one section."""
        return _table([self.one(packs.column("section")[0].as_py(), unpacked(packs.column("content").to_pylist()))])

    def several(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fold all PACKS of a small step at once."""
        contents: dict[int, list[bytes]] = defaultdict(list)
        for batch in batches:
            for pack in batch.to_pylist():
                contents[pack["section"]].append(pack["content"])
        yield from _table([self.one(each, unpacked(contents[each])) for each in sorted(contents)]).to_batches()

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


def _table(folded: list[Folded]) -> pa.Table:
    return pa.Table.from_pylist([each._asdict() for each in folded], FOLDED)
