"""The tables' place in a store: files written and read by executors and by the driver.

A file is whole or not there. `_end.json` says up to which offset the tables are; what begins there or later is of a
step that did not come to its end.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.metadata_tables.schemas import TABLES
from spark_jobs.metadata_tables.spans import TableFile, parse_file
from storage.tiered.errors import ObjectNotFound
from storage.tiered.store_uri import StoreAt, StoreUri, open_store

END: Final = "_end.json"
STAGED: Final = "_steps/"
_PIECE_BYTES: Final = 1024 * 1024


@lru_cache(maxsize=4)
def _opened(uri: StoreUri) -> StoreAt:
    """One store for each place in a process: connections to S3 are dear, and safe to share."""
    return open_store(uri)


@dataclass(frozen=True, slots=True)
class TableStore:
    """By name, so that it may be pickled. Raises as `ObjectStore` does."""

    uri: StoreUri

    def write(self, name: str, table: pa.Table) -> None:
        place = _opened(self.uri)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        data = memoryview(sink.getvalue())
        place.store.put(place.key(name), (data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES)))

    def read(self, name: str) -> pa.Table:
        """Files are bounded: by what a step brings to a section, and by what is merged."""
        place = _opened(self.uri)
        return pq.read_table(pa.BufferReader(b"".join(place.store.get(place.key(name)))))

    def files(self, table: str, start: int = 0) -> Iterator[TableFile]:
        """Of spans that begin at `start` or later."""
        after = f"{table}/{start:020d}-" if start else ""
        for name, size in self._listed(f"{table}/", after):
            file = parse_file(name, size)
            if file is not None:
                yield file

    def staged(self, prefix: str) -> list[str]:
        return [name for name, _ in self._listed(STAGED + prefix)]

    def delete(self, names: Iterable[str]) -> None:
        place = _opened(self.uri)
        keys = [place.key(name) for name in names]
        if keys:
            place.store.delete(keys)

    def end(self) -> int | None:
        """None where there are no tables yet."""
        place = _opened(self.uri)
        try:
            return int(json.loads(b"".join(place.store.get(place.key(END))))["end"])
        except ObjectNotFound:
            return None

    def set_end(self, end: int) -> None:
        place = _opened(self.uri)
        place.store.put(place.key(END), [json.dumps({"end": end}).encode()])

    def remove_from(self, end: int) -> None:
        """Forget everything that goes beyond `end`."""
        self.delete(self.staged(""))
        for table in TABLES:
            self.delete(file.name for file in self.files(table) if file.span.end > end)

    def _listed(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        place = _opened(self.uri)
        for info in place.store.list(place.key(prefix), place.key(after) if after else ""):
            yield place.name(info.key), info.size
