"""Processing of the metadata log by one Python process without Spark, the baseline of the Spark job.

The process reads with the same protocol and code, and writes the same results: a verified snapshot, and the tables on
request. Its state is in memory. It prints a line of JSON for each snapshot and continues after a line on stdin; or it
tails, and prints its offset.
"""

import argparse
import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pyarrow as pa

from broker.client import Client, ClientConfig
from broker.metadata.snapshot.manifest import SnapshotManifest
from protocol.ids import LeaderEpoch
from spark_jobs.metadata.log_rows import rows_of
from spark_jobs.metadata_snapshots.changes import FoldedRange
from spark_jobs.metadata_snapshots.snapshot_store import ObjectSnapshotStore
from spark_jobs.metadata_source.metadata_log import MetadataLogClient
from spark_jobs.metadata_tables.sink import TablesSink
from spark_jobs.metadata_tables.table_store import TableStore
from storage.tiered.loading.store_uri import StoreUri
from tests.support.harnesses.single_process import SingleProcess

STEP_ROWS: Final = 1_000_000
WAIT_MS: Final = 500
_ALL_IN_ONE: Final = 0


class Folding:
    """The state of a log, and its tables if requested."""

    def __init__(self, log: MetadataLogClient, tables: Path | None) -> None:
        self.end = 0
        self._log = log
        self._fold = SingleProcess(with_changes=tables is not None)
        place = None if tables is None else StoreUri(directory=str(tables))
        self._sink = None if place is None else TablesSink(TableStore(place), place)
        if self._sink is not None:
            self._sink.begin(0, log.cluster_id)

    def fold_up_to(self, end: int) -> None:
        """Apply the log up to an offset, in steps of some size; return the state of each step."""
        while self.end < end:
            batches: list[pa.RecordBatch] = []
            offset = self.end
            while offset < end and sum(map(len, batches)) < STEP_ROWS:
                batches.append(self._rows(offset, end))
                offset = batches[-1].column("batch_end")[-1].as_py()
            self._take(batches)

    def wait(self) -> bool:
        """Apply new records, if any arrive in time."""
        found = self._log.fetch(self.end, max_wait_ms=WAIT_MS)
        if found.data:
            self._take([rows_of(found.data, start=self.end, end=found.high_watermark)])
        return bool(found.data)

    def snapshot(self, out: Path) -> SnapshotManifest:
        """Write a snapshot, read it back, and put it, as the job does."""
        store = ObjectSnapshotStore(StoreUri(directory=str(out)))
        return store.write(self._log.cluster_id, self.end, LeaderEpoch(self._fold.epoch), self._fold.snapshot())

    def _rows(self, offset: int, end: int) -> pa.RecordBatch:
        return rows_of(self._log.fetch(offset).data, start=offset, end=end)

    def _take(self, batches: list[pa.RecordBatch]) -> None:
        fold, start = self._fold, self.end
        fold.take(pa.Table.from_batches(batches))
        self.end = fold.end
        if self._sink is not None:
            span = FoldedRange(start, fold.end, fold.epoch)
            self._sink.section(span, _ALL_IN_ONE, fold.changes)
            self._sink.registry(span, fold.registry_changes)
            self._sink.finish(span)


def snapshots(folding: Folding, log: MetadataLogClient, out: Path) -> None:
    """Write a snapshot at the end of the log, and another one for each line on stdin."""
    while True:
        folding.fold_up_to(log.bounds().end)
        manifest = folding.snapshot(out)
        print(json.dumps({"sha256": manifest.sha256, "size": manifest.size}), flush=True)
        if not sys.stdin.readline():
            return


def tail(folding: Folding) -> None:
    """Tail until killed, with a line of output with the end offset for each step."""
    while True:
        if folding.wait():
            print(folding.end, flush=True)


def main() -> None:
    """Parse the command line; without --out, tail."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tables", type=Path)
    options = parser.parse_args()
    with closing(MetadataLogClient(Client(ClientConfig.parse(options.bootstrap)))) as log:
        folding = Folding(log, options.tables)
        if options.out is None:
            tail(folding)
        else:
            snapshots(folding, log, options.out)


if __name__ == "__main__":
    main()
