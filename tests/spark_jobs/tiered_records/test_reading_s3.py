"""Segments in a bucket of a real S3 server, over a connection that refuses requests and interrupts responses."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from protocol.records.compression import Codec
from spark_jobs.tiered_records.bucket import bucket_of, opened, plan
from spark_jobs.tiered_records.options import Options
from spark_jobs.tiered_records.reading import read
from storage.tiered.stores.s3 import S3Store
from tests.spark_jobs.tiered_records.tiered_partition import PREFIX, TOPIC, TieredPartitionHarness
from tests.support.processes.s3_proxy import Fault, S3Proxy
from tests.support.processes.s3_server import BUCKET, REGION, S3Server, unavailable_reason

pytestmark = pytest.mark.integration

SMALL_CHUNKS = {"chunk.size": "100000"}


class Cloud(NamedTuple):
    """A server, and the faulty connection to it."""

    server: S3Server
    proxy: S3Proxy


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    # This seed causes both faults, neither so often in a row that the store gives up.
    with S3Server(tmp_path / "s3") as server, S3Proxy(server.port, seed=7) as proxy:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
        yield Cloud(server, proxy)
        opened.cache_clear()


def test_throttling_and_interrupted_bodies_are_retried(tmp_path: Path, cloud: Cloud) -> None:
    store = S3Store(cloud.server.settings)
    harness = TieredPartitionHarness(tmp_path, store=store, storage=SMALL_CHUNKS)
    for codec in (Codec.NONE, Codec.ZSTD):
        for _ in range(30):
            harness.append(100, codec=codec, size=500)
        harness.roll()
    store.close()
    uri = f"s3a://{BUCKET}/{PREFIX}?endpoint={cloud.proxy.endpoint}&region={REGION}&path-style=true"
    options = Options.of({"uri": uri, "topic": TOPIC})
    found, parts = [], plan(options)
    cloud.proxy.strike(Fault.THROTTLED, 0.4, key_part=".log")
    cloud.proxy.strike(Fault.CUT_ANSWER, 0.5, key_part=".log")
    for part in parts:
        for batch in read(bucket_of(options).storage, part):
            found += batch.column("offset").to_pylist()
    assert found == [each.offset for each in harness.readable_records()] == list(range(6000))
    counts = cloud.proxy.counts()
    assert counts[Fault.THROTTLED] > 0
    assert counts[Fault.CUT_ANSWER] > 0
