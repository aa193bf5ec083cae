"""The location of the tables in a store: files written and read by executors and by the driver.

Files are atomic. `_end.json` has the end offset of the tables; files beyond it belong to an unfinished step.
`_cluster.json` has the cluster id, `_owner.json` the output of the job that writes the tables.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.metadata_tables.spans import TableFile, parse_file
from spark_jobs.store_directory import StoreDirectory
from storage.tiered.errors import ObjectNotFound

END: Final = "_end.json"
CLUSTER: Final = "_cluster.json"
OWNER: Final = "_owner.json"
STAGED: Final = "_steps/"
_PIECE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TableStore(StoreDirectory):
    """The files of the tables. Reads and writes are bounded: by a section's rows in a step, and by merged rows."""

    def write(self, name: str, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        data = memoryview(sink.getvalue())
        self.put(name, (data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES)))

    def read(self, name: str) -> pa.Table:
        return pq.read_table(pa.BufferReader(b"".join(self.get(name))))

    def files(self, table: str, start: int = 0) -> Iterator[TableFile]:
        """Yield the files of spans that begin at `start` or later."""
        after = f"{table}/{start:020d}-" if start else ""
        for found in self.listed(f"{table}/", after):
            file = parse_file(found.key, found.size)
            if file is not None:
                yield file

    def staged(self, prefix: str) -> list[str]:
        return [found.key for found in self.listed(STAGED + prefix)]

    def end(self) -> int | None:
        """Return the end offset of the tables; None before the first step."""
        found = self._read_json(END)
        return None if found is None else int(found["end"])

    def set_end(self, end: int) -> None:
        self.put(END, [json.dumps({"end": end}).encode()])

    def cluster_id(self) -> str | None:
        """Return the cluster of the tables; None before the first step."""
        found = self._read_json(CLUSTER)
        return None if found is None else str(found["clusterId"])

    def set_cluster_id(self, cluster_id: str) -> None:
        self.put(CLUSTER, [json.dumps({"clusterId": cluster_id}).encode()])

    def owner(self) -> str | None:
        """Return the output (`--out`) of the job that writes the tables; None before the first job."""
        found = self._read_json(OWNER)
        return None if found is None else str(found["out"])

    def claim(self, out: str) -> None:
        """Make the job with this output the owner unless another job is: the store decides between two at a time."""
        self.put_new(OWNER, json.dumps({"out": out}).encode())

    def _read_json(self, name: str) -> dict[str, Any] | None:
        try:
            found = json.loads(b"".join(self.get(name)))
        except ObjectNotFound:
            return None
        assert isinstance(found, dict)
        return found
