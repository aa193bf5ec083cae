"""Tiered records from their store to Arrow batches, the work of the data source in each Spark task.

Records per second of processor time, against a reader of single records, and against reading and checking the same
bytes only, the minimum of any reader. A partition of generated records is copied to a directory as by a broker, in
segments of 64 MiB. Each side reads it in its own process, so that their memory can be compared: the best of several
runs, since the first is slower and other load may interfere.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from protocol.ids import LeaderEpoch
from protocol.records.builder import Record, build_batch
from protocol.records.compression import Codec
from protocol.records.reader import iter_records
from spark_jobs.tiered_records.bucket import bucket_of, plan
from spark_jobs.tiered_records.options import Options
from spark_jobs.tiered_records.planning import SegmentRange
from spark_jobs.tiered_records.reading import read
from spark_jobs.tiered_records.rows import RowLimits
from spark_jobs.tiered_records.schema import RECORDS
from spark_jobs.tiered_records.windows import windows
from storage.tiered.remote_storage import RemoteStorageManager
from storage.tiered.segments.batch_stream import BatchStream
from tests.benchmarks.watched_process import own_peak_mb
from tests.benchmarks.workloads import HIGHER, LOWER
from tests.spark_jobs.tiered_records.tiered_partition import BEGAN_MS, TieredPartitionHarness, options_of

TOTAL_BYTES: Final = 128 * 1024 * 1024
SEGMENT_BYTES: Final = 64 * 1024 * 1024
BATCH_BYTES: Final = 16 * 1024
RUNS: Final = 3
PLAIN_ROWS: Final = 10_000
"""Records per Arrow batch of the reader of single records."""
HEADERS: Final = (("trace", b"00-4bf92f3577b34da6a3ce929d0e0e4736"), ("tenant", b"eu-west"))


class Shape(NamedTuple):
    """Approximate shape of the records: bytes of their values, headers, codec."""

    size: int
    codec: Codec = Codec.NONE
    headers: tuple[tuple[str, bytes], ...] = ()


SHAPES: Final = {
    "of 100 bytes": Shape(100),
    "of 100 bytes with two headers": Shape(100, headers=HEADERS),
    "of 1 kB": Shape(1000),
    "of 1 kB in zstd": Shape(1000, Codec.ZSTD),
}
LIMITED: Final = "of 1 kB"
"""The shape that is also compared to reading its bytes only."""
RATE: Final = "tiered records {}, store to Arrow, per core (against one by one)"
BYTES: Final = "tiered bytes of 1 kB records, store to Arrow, per core (against reading and checking them alone)"
MEMORY: Final = "peak memory of reading tiered records of 1 kB (against one by one)"


def stage(directory: Path, shape: Shape) -> int:
    """Copy a partition of such records; return their number."""
    staged = TieredPartitionHarness(directory, storage={"chunk.size": str(4 * 1024 * 1024)})
    per_batch = max(1, BATCH_BYTES // shape.size)
    random = np.random.default_rng(11)
    text = json.dumps([{"id": number, "state": "open"} for number in random.integers(0, 10**6, 20_000).tolist()])
    pool = text.encode()
    left = TOTAL_BYTES
    while left > 0:
        for _ in range(SEGMENT_BYTES // (per_batch * shape.size)):
            begins = random.integers(0, len(pool) - 2 * shape.size, per_batch).tolist()
            sizes = random.integers(shape.size // 2, shape.size * 3 // 2, per_batch).tolist()
            base = staged.end
            staged.log.append_as_follower(
                build_batch(
                    [
                        Record(BEGAN_MS + base + at, b"key-%d" % (base + at), pool[begin : begin + size], shape.headers)
                        for at, (begin, size) in enumerate(zip(begins, sizes, strict=True))
                    ],
                    base_offset=base,
                    leader_epoch=LeaderEpoch(0),
                    codec=shape.codec,
                ),
                now_ms=BEGAN_MS,
            )
        left -= SEGMENT_BYTES
        staged.roll()
    return staged.end


def by_column(storage: RemoteStorageManager, part: SegmentRange) -> Iterator[int]:
    """Read with the data source; yield the rows of each Arrow batch."""
    return (batch.num_rows for batch in read(storage, part))


def one_by_one(storage: RemoteStorageManager, part: SegmentRange) -> Iterator[int]:
    """Read in the straightforward way: the node's compiled reader, lists, and Arrow."""
    partition = part.segment.id.partition
    rows: list[tuple[object, ...]] = []
    stream = BatchStream(part.segment, 0, storage.read_segment(part.segment, 0))
    for header in stream:
        for record in iter_records(stream.batch()):
            headers = [{"key": key, "value": value} for key, value in record.headers]
            told = (record.offset, record.timestamp * 1000, int(header.timestamp_type), header.leader_epoch)
            rows.append((partition.topic, partition.partition, *told, record.key, record.value, headers))
            if len(rows) == PLAIN_ROWS:
                yield _arrow(rows).num_rows
                rows.clear()
    if rows:
        yield _arrow(rows).num_rows


def _arrow(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, RECORDS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


def bytes_alone(storage: RemoteStorageManager, part: SegmentRange) -> Iterator[int]:
    """Read every batch and compare its checksum, without decoding."""
    size = part.segment.size_bytes
    for window in windows(part.segment, storage.read_segment(part.segment, 0), 0, size, RowLimits().window_bytes):
        window.check(np.arange(len(window)))
        yield int(window.column("record_count").sum())


SIDES: Final[dict[str, Callable[[RemoteStorageManager, SegmentRange], Iterator[int]]]] = {
    "columns": by_column,
    "records": one_by_one,
    "bytes": bytes_alone,
}


def side(name: str, bucket: Path) -> dict[str, float]:
    """Return the figures of one side: per second of processor time, and in MB."""
    options = Options.of(options_of(bucket))
    parts = plan(options)
    spent, records = float("inf"), 0
    for _ in range(RUNS):
        began, records = time.process_time(), 0
        for part in parts:
            records += sum(SIDES[name](bucket_of(options).storage, part))
        spent = min(spent, time.process_time() - began)
    return {
        "records": records,
        "rate": records / spent / 1e6,
        "mb_rate": sum(part.segment.size_bytes for part in parts) / spent / 1e6,
        "rss_mb": own_peak_mb(),
    }


def measure(shape: str) -> dict[str, dict[str, float]]:
    """Measure all sides for records of a shape, each in its own process."""
    figures = {}
    with tempfile.TemporaryDirectory() as directory:
        count = stage(Path(directory), SHAPES[shape])
        for name in SIDES if shape == LIMITED else ("columns", "records"):
            command = [sys.executable, "-m", __spec__.name, "--side", name, "--bucket", f"{directory}/bucket"]
            ran = subprocess.run(command, capture_output=True, text=True, check=True)
            figures[name] = json.loads(ran.stdout)
            assert figures[name]["records"] == count
    return figures


def rows(only: str) -> list[tuple[str, float | None, float | None, str, str]]:
    """Return the report's rows with names that contain `only`: the data source's figure and its baseline."""
    found: list[tuple[str, float | None, float | None, str, str]] = []
    for shape in SHAPES:
        names = [RATE.format(shape), *((BYTES, MEMORY) if shape == LIMITED else ())]
        if not any(only in name for name in names):
            continue
        figures = measure(shape)
        ours, plain = figures["columns"], figures["records"]
        found.append((names[0], ours["rate"], plain["rate"], "M/s", HIGHER))
        if shape == LIMITED:
            found.append((BYTES, ours["mb_rate"], figures["bytes"]["mb_rate"], "MB/s", HIGHER))
            found.append((MEMORY, ours["rss_mb"], plain["rss_mb"], "MB", LOWER))
    return [row for row in found if only in row[0]]


def main() -> None:
    """Print the rows, or the figures of one side as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--side", choices=list(SIDES))
    parser.add_argument("--bucket", type=Path)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(side(options.side, options.bucket)))
        return
    for name, ours, theirs, unit, _ in rows(options.only):
        print(f"{name}: {ours:.3f} against {theirs:.3f} {unit}", flush=True)


if __name__ == "__main__":
    main()
