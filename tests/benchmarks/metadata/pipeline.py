"""The Spark-free core of the metadata pipeline on one core: records per second read from batches, applied, and encoded
as a snapshot, against the node's own replay of the same records.

The log is generated: topics of ten partitions with three replicas, then changes as brokers stop and return, in batches
of a thousand. The node processes a tenth of it, since its rates do not depend on the size. Each side runs in its own
process, so that their memory can be compared.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from broker.metadata.image.features import bootstrap_records
from broker.metadata.image.loader import MetadataLoader, RecordBatch
from broker.metadata.image.records import decode_record, encode_record
from broker.metadata.snapshot.codec import image_batches
from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord
from protocol.primitives import Uuid
from protocol.records.batch import iter_headers
from protocol.records.builder import build_value_batch
from protocol.records.reader import iter_records
from spark_jobs.metadata.log_rows import rows_of
from tests.benchmarks.watched_process import own_peak_mb
from tests.benchmarks.workloads import HIGHER, LOWER
from tests.support.harnesses.single_process import SingleProcess

PARTITIONS: Final = 1_000_000
CHANGES: Final = 5_000_000
PER_TOPIC: Final = 10
BROKERS: Final = 100
CHUNK_BYTES: Final = 64 * 1024 * 1024
CHANGES_PER_BATCH: Final = 1_000
NODE_SHARE: Final = 10
FIGURES: Final = {
    "decode": ("metadata records decoded, per core (against the node's replay)", "M/s", HIGHER),
    "fold": ("metadata records folded, per core (against the node's replay)", "M/s", HIGHER),
    "encode": ("snapshot records encoded, per core (against the node)", "M/s", HIGHER),
    "seconds": (
        "metadata log to snapshot, processor time (against ten times that of the node for a tenth)",
        "s",
        LOWER,
    ),
    "rss_mb": ("peak memory from metadata log to snapshot", "MB", LOWER),
}
"""Name, unit and better direction of each figure's row."""


def log_chunks(partitions: int, changes: int) -> Iterator[bytes]:
    """Yield the log in chunks of whole batches."""
    random = np.random.default_rng(7)
    topics = partitions // PER_TOPIC
    ids = random.bytes(16 * topics)
    offset, chunk, size = 0, [], 0
    for frames in _all_frames(random, ids, topics, changes):
        batch = build_value_batch(frames, 1_000 + offset, base_offset=offset, leader_epoch=LeaderEpoch(1))
        offset += len(frames)
        chunk.append(batch)
        size += len(batch)
        if size > CHUNK_BYTES:
            yield b"".join(chunk)
            chunk, size = [], 0
    if chunk:
        yield b"".join(chunk)


def _all_frames(random: np.random.Generator, ids: bytes, topics: int, changes: int) -> Iterator[list[bytes]]:
    yield [encode_record(*record) for record in bootstrap_records()]
    directories = [Uuid(random.bytes(16)) for _ in range(BROKERS)]
    first = random.integers(0, BROKERS, topics)
    for topic in range(topics):
        topic_id = Uuid(ids[16 * topic : 16 * topic + 16])
        yield _topic_frames(topic, topic_id, int(first[topic]), directories)
    for start in range(0, changes, CHANGES_PER_BATCH):
        yield _change_frames(random, ids, topics, min(CHANGES_PER_BATCH, changes - start))


def _topic_frames(topic: int, topic_id: Uuid, first: int, directories: Sequence[Uuid]) -> list[bytes]:
    frames = [encode_record(TopicRecord(name=f"topic-{topic:06}", topic_id=topic_id), 0)]
    replicas = [(first + step) % BROKERS for step in range(3)]
    record = PartitionRecord(
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[directories[each] for each in replicas],
    )
    record.partition_id = 0
    frame = encode_record(record, 2)
    return frames + [b"".join((frame[:3], index.to_bytes(4, "big"), frame[7:])) for index in range(PER_TOPIC)]


def _change_frames(random: np.random.Generator, ids: bytes, topics: int, count: int) -> list[bytes]:
    """Return changes, a third each: a broker leaves the ISR and another leads; the broker joins the ISR; it leads
    again.
    """
    frames = []
    chosen = random.integers(0, topics, count).tolist()
    indices = random.integers(0, PER_TOPIC, count).tolist()
    for number, (topic, index) in enumerate(zip(chosen, indices, strict=True)):
        template = _TEMPLATES[number % len(_TEMPLATES)]
        id = ids[16 * topic : 16 * topic + 16]
        frames.append(b"".join((template[:3], index.to_bytes(4, "big"), id, template[23:])))
    return frames


_TEMPLATES: Final = [
    encode_record(PartitionChangeRecord(isr=[2, 3], leader=2), 2),
    encode_record(PartitionChangeRecord(isr=[1, 2, 3]), 2),
    encode_record(PartitionChangeRecord(leader=1), 2),
]


def pipeline(partitions: int, changes: int) -> dict[str, float]:
    """Measure the pipeline's core."""
    job, spent, records = SingleProcess(), dict.fromkeys(("decode", "fold", "encode"), 0.0), 0
    for chunk in log_chunks(partitions, changes):
        began = time.process_time()
        rows = pa.Table.from_batches([rows_of(chunk, start=0, end=2**62)])
        spent["decode"] += time.process_time() - began
        began = time.process_time()
        job.take(rows)
        spent["fold"] += time.process_time() - began
        records += len(rows)
    began = time.process_time()
    size = sum(map(len, job.snapshot()))
    spent["encode"] = time.process_time() - began
    assert size > 0
    return _figures(spent, records, sum(map(len, job.sections)))


def node(partitions: int, changes: int) -> dict[str, float]:
    """Measure the node's own replay."""
    loader, spent, records = MetadataLoader(), dict.fromkeys(("decode", "fold", "encode"), 0.0), 0
    for chunk in log_chunks(partitions, changes):
        began = time.process_time()
        batches = list(_decoded(chunk))
        spent["decode"] += time.process_time() - began
        began = time.process_time()
        for batch in batches:
            loader.load([batch])
        spent["fold"] += time.process_time() - began
        records += sum(len(batch.records) for batch in batches)
    began = time.process_time()
    assert sum(map(len, image_batches(loader.image, None))) > 0
    spent["encode"] = time.process_time() - began
    return _figures(spent, records, loader.image.topics.partition_count + len(loader.image.topics))


def _decoded(chunk: bytes) -> Iterator[RecordBatch]:
    for position, header in iter_headers(chunk):
        records = [decode_record(record.value or b"") for record in iter_records(chunk, position)]
        yield RecordBatch(header.base_offset, header.last_offset, header.leader_epoch, header.max_timestamp, records)


def _figures(spent: dict[str, float], records: int, encoded: int) -> dict[str, float]:
    return {
        "decode": records / spent["decode"] / 1e6,
        "fold": records / spent["fold"] / 1e6,
        "encode": encoded / spent["encode"] / 1e6,
        "seconds": sum(spent.values()),
        "rss_mb": own_peak_mb(),
    }


SIDES: Final = {"pipeline": pipeline, "node": node}


def measure(partitions: int = PARTITIONS, changes: int = CHANGES) -> dict[str, dict[str, float]]:
    """Measure both sides, each in its own process."""
    figures = {}
    for side in SIDES:
        share = NODE_SHARE if side == "node" else 1
        command = [sys.executable, "-m", __spec__.name, "--side", side]
        command += ["--partitions", str(partitions // share), "--changes", str(changes // share)]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        figures[side] = json.loads(ran.stdout)
        print(side, json.dumps(figures[side]), flush=True)
    return figures


def rows(only: str) -> list[tuple[str, float | None, float | None, str, str]]:
    """Return the report's rows with names that contain `only`: the pipeline's figure and the node's."""
    if not any(only in name for name, _, _ in FIGURES.values()):
        return []
    figures = measure()
    return [(name, *_sides(figures, figure), unit, better) for figure, (name, unit, better) in FIGURES.items()]


def _sides(figures: dict[str, dict[str, float]], figure: str) -> tuple[float, float | None]:
    """Return the pipeline's figure and the node's for the whole log, if its share allows an extrapolation."""
    ours, nodes = figures["pipeline"][figure], figures["node"][figure]
    if figure == "rss_mb":
        return ours, None
    return ours, nodes * NODE_SHARE if figure == "seconds" else nodes


def main() -> None:
    """Print the figures of both sides, or of one as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--changes", type=int, default=CHANGES)
    parser.add_argument("--side", choices=list(SIDES))
    options = parser.parse_args()
    if options.side:
        print(json.dumps(SIDES[options.side](options.partitions, options.changes)))
        return
    figures = measure(options.partitions, options.changes)
    for figure, (name, unit, _) in FIGURES.items():
        ours, nodes = _sides(figures, figure)
        against = "" if nodes is None else f" against {nodes:.3f}"
        print(f"{name}: {ours:.3f}{against} {unit}")


if __name__ == "__main__":
    main()
