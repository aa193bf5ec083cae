"""Consistent reads of tables while the job writes them: whole steps, every row once. Without Spark.

Files that are merged during a listing may be missing in it; a listing that equals the previous one is consistent. A
listed file may be merged before it is read; its rows are then in the merged file.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.metadata_tables.schemas import TABLES
from spark_jobs.metadata_tables.sink import SMALL_BYTES
from spark_jobs.metadata_tables.spans import FileSpan, TableFile, by_span, covered, is_small
from spark_jobs.metadata_tables.table_store import TableStore
from storage.tiered.errors import ObjectNotFound
from storage.tiered.loading.store_uri import parse_store_uri

ATTEMPTS: Final = 20
"""Attempts at a listing, and at reading merged rows. Merges are many steps apart."""


class Share(NamedTuple):
    """Files of a span that are read together: all of them if they are small and may be merged, else one."""

    span: FileSpan
    names: tuple[str, ...]
    size: int


def load_table(uri: str, table: str) -> pa.Table:
    """Load a whole table as of now, by offset: call `.to_pandas()`, or query it with DuckDB.

    Raises StoreUriError, KeyError for an unknown table, and the exceptions of the store.
    """
    schema, store = TABLES[table], TableStore(parse_store_uri(uri))
    batches = [batch for share in shares(store, table) for batch in read_share(store, table, share)]
    return pa.Table.from_batches(batches, schema).sort_by(schema.names[0])


def shares(store: TableStore, table: str) -> list[Share]:
    """Return the files of a table in shares that can be read separately."""
    found: list[Share] = []
    for of_span in by_span(live_files(store, table)):
        parts = [of_span] if is_small(of_span, SMALL_BYTES) else [[file] for file in of_span]
        found += (Share(part[0].span, tuple(file.name for file in part), sum(f.size for f in part)) for part in parts)
    return found


def live_files(store: TableStore, table: str) -> list[TableFile]:
    """Return the current files of a table."""
    before: tuple[int, list[TableFile]] | None = None
    for _ in range(ATTEMPTS):
        end = store.end() or 0
        found = end, [file for file in store.files(table) if file.span.end <= end]
        if found == before:
            merged = set(covered(found[1]))
            return [file for file in found[1] if file not in merged]
        before = found
    raise ObjectNotFound(f"the files of {table} in {store.uri} keep changing during the listing")


def read_share(store: TableStore, table: str, share: Share) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a share, also if they were merged into another file meanwhile."""
    for found in _tables(store, table, share):
        yield from found.cast(TABLES[table]).to_batches(max_chunksize=100_000)


def _tables(store: TableStore, table: str, share: Share) -> Sequence[pa.Table]:
    try:
        return [store.read(name) for name in share.names]
    except ObjectNotFound:
        for _ in range(ATTEMPTS):
            into = [file for file in live_files(store, table) if file.span.covers(share.span)]
            if not into:
                raise
            try:
                return [_within(share.span, store.read(file.name)) for file in into]
            except ObjectNotFound:
                continue
        raise


def _within(span: FileSpan, rows: pa.Table) -> pa.Table:
    offset = pc.field(rows.schema.names[0])
    return rows.filter((offset >= span.start) & (offset < span.end))
