"""The vectorised fold against the node's replay, over random histories and in random micro-batches."""

import hashlib
import random
from collections import Counter
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.snapshot.codec import image_batches
from protocol.records.compression import Codec
from spark_jobs.metadata.log_rows import FROM_SNAPSHOT, rows_of
from tests.broker.metadata.controller.test_controller_simulation import Simulation
from tests.broker.metadata.snapshot.test_canonical_snapshots import loaded
from tests.spark_jobs.metadata.logs import EveryHistory, Log, change, entries, topic_changes
from tests.support.harnesses.single_process import SingleProcess


@lru_cache
def log_of(seed: int) -> Log:
    return Log.of(EveryHistory(seed, 150).batches, seed)


def sha256(job: SingleProcess, codec: Codec = Codec.NONE) -> str:
    sha = hashlib.sha256()
    for piece in job.snapshot(codec):
        sha.update(piece)
    return sha.hexdigest()


def node_sha256(log: Log, number: int, codec: Codec = Codec.NONE) -> str:
    """Return the digest of the snapshot that a node writes after a batch."""
    sha = hashlib.sha256()
    for piece in image_batches(_image(log, number), log.controls[number], codec=codec):
        sha.update(piece)
    return sha.hexdigest()


def _image(log: Log, number: int) -> MetadataImage:
    image = log.images[number]
    assert image is not None
    return image


def normal(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(
        rows, key=lambda row: (row["offset"], row["topic_id"], -1 if row["partition"] is None else row["partition"])
    )


@pytest.mark.parametrize("seed", range(3))
def test_snapshot_equals_the_nodes_after_every_batch(seed: int) -> None:
    log, job = log_of(seed), SingleProcess()
    seen = 0
    for number, image in enumerate(log.images):
        job.take(log.rows(number, number + 1))
        assert job.is_open == (image is None)
        if image is not None:
            assert job.end == image.offset + 1
            assert sha256(job) == node_sha256(log, number), f"after offset {image.offset}"
            seen += 1
    assert seen > len(log.images) // 3


@settings(max_examples=12, phases=[Phase.explicit, Phase.generate])  # a seed draws the history, so shrinking is useless
@given(seed=st.integers(0, 30), draw=st.randoms(use_true_random=False))
def test_snapshot_and_changes_do_not_depend_on_micro_batches(seed: int, draw: random.Random) -> None:
    log, job = log_of(seed), SingleProcess(with_changes=True)
    changes: list[dict[str, Any]] = []
    first = 0
    while first < len(log.batches):
        end = min(len(log.batches), first + draw.choice([5, 20, 100, 1000]))
        again = max(0, first - draw.choice([0, 0, 5]))
        job.take(log.rows(again, end))
        changes += job.changes.to_pylist()
        image = log.images[end - 1]
        assert image is None or sha256(job) == node_sha256(log, end - 1)
        first = end
    assert normal(changes) == normal(list(topic_changes(log.batches)))


@pytest.mark.parametrize("seed", range(3))
def test_controller_log_folds_to_the_nodes_snapshot(seed: int) -> None:
    simulation = Simulation(seed)
    for _ in range(150):
        simulation.step()
    simulation.cluster.commit()
    log = Log.of(simulation.cluster.log, seed)
    for at_once in (1_000, 7):
        job = SingleProcess(with_changes=True)
        changes: list[dict[str, Any]] = []
        for first in range(0, len(log.batches), at_once):
            job.take(log.rows(first, first + at_once))
            changes += job.changes.to_pylist()
        assert sha256(job) == node_sha256(log, len(log.batches) - 1)
        assert normal(changes) == normal(list(topic_changes(log.batches)))
    assert Counter(row["operation"] for row in changes).keys() == {"created", "changed", "removed"}


@settings(max_examples=12, phases=[Phase.explicit, Phase.generate])  # a seed draws the history, so shrinking is useless
@given(seed=st.integers(0, 30), draw=st.randoms(use_true_random=False))
def test_snapshot_replaces_the_state(seed: int, draw: random.Random) -> None:
    """The log was trimmed beneath the job, which continues from a node's snapshot and reports the difference."""
    log = log_of(seed)
    before, after = sorted(draw.sample(log.aligned(), 2))
    job = SingleProcess(with_changes=True)
    job.take(log.rows(0, before + 1))
    old, new = _image(log, before), _image(log, after)
    data = b"".join(image_batches(new, log.controls[after]))
    snapshot = rows_of(data, start=0, end=new.offset + 1, origin=FROM_SNAPSHOT)
    rows = [pa.Table.from_batches([snapshot]), log.rows(after + 1, after + 10)]
    job.take(rows[0])
    assert sha256(job) == node_sha256(log, after)
    was, now = entries(old.topics), entries(loaded(data).topics)
    batch = log.batches[after]._replace(epoch=new.epoch, timestamp_ms=new.provenance.timestamp_ms)
    expected = [
        change(new.offset, batch, key, was.get(key), now.get(key)) | {"is_summarized": True}
        for key in {**was, **now}
        if was.get(key) != now.get(key)
    ]
    assert normal(job.changes.to_pylist()) == normal(expected)
    assert job.changed_records >= sum(row["operation"] != "created" for row in expected)
    both = SingleProcess()
    both.take(log.rows(0, before + 1))
    both.take(pa.concat_tables(rows))
    job.take(rows[1])
    if not job.is_open:
        assert sha256(both) == sha256(job)


def test_compressed_snapshots_equal_the_nodes() -> None:
    log, job = log_of(1), SingleProcess()
    last = log.aligned()[-1]
    job.take(log.rows(0, last + 1))
    for codec in (Codec.GZIP, Codec.ZSTD):
        assert sha256(job, codec) == node_sha256(log, last, codec)
