"""Metrics of remote work that is refused or waits for a reason (`broker.metrics.remote_work`)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from broker.metrics.remote_work import remote_work_families
from storage.tiered.errors import RetriableRemoteStorageError
from storage.tiered.segment_metadata import RemoteSegment
from tests.broker.runtime.remote_log.test_deposed_leaders import Cluster
from tests.broker.runtime.remote_log.test_manager import MINUTE_MS, a_while, rot, staged
from tests.support.fakes.shared_remote_storage import Fault, Operation, SharedRemoteStorage
from tests.support.harnesses.remote_log_harness import SETTINGS, Broker, Bucket


@dataclass
class Reads:
    refused: int = 0
    waiting_for_quota: int = 0


def values(broker: Broker, reads: Reads | None = None) -> dict[tuple[str, str, str], float]:
    """Return the values that are not 0, by kind, work and reason."""
    return {
        (family.name.removeprefix("ottla_remote_work_"), sample.labels["work"], sample.labels["reason"]): sample.value
        for family in remote_work_families(reads or Reads(), broker.metrics)
        for sample in family.read()
        if sample.value
    }


@staged
async def test_reads_are_shown_by_reason() -> None:
    broker = Broker(Bucket()).start()
    assert values(broker, Reads(3, 2)) == {
        ("refused_total", "read", "queue_full"): 3,
        ("blocked", "read", "quota"): 2,
    }
    await broker.stop()


@staged
async def test_copies_that_wait_for_the_quota_are_shown_until_they_begin() -> None:
    broker = Broker(Bucket()).start()
    broker.lead(0)
    size = broker.fill(1).size_bytes
    await a_while()
    assert values(broker) == {}
    broker.settings = replace(SETTINGS, copy_bytes_per_second=size // 100, copy_quota_window_ms=1000)
    broker.fill(3)
    await a_while(50)
    assert values(broker) == {("blocked", "copy", "quota"): 1}
    broker.settings = SETTINGS
    await a_while(600)
    assert values(broker) == {}
    await broker.stop()


@staged
async def test_copies_that_wait_for_the_store_are_shown() -> None:
    bucket = Bucket()
    is_down = [True]

    def fault(operation: Operation, segment: RemoteSegment) -> Fault | None:
        return Fault(RetriableRemoteStorageError("the store is down")) if is_down[0] else None

    bucket.storage = SharedRemoteStorage(fault)
    broker = Broker(bucket).start()
    broker.lead(0)
    broker.lead(0, index=1)
    broker.fill(1)
    broker.fill(1, index=1)
    await a_while(300)
    assert values(broker) == {("blocked", "copy", "store"): 2}
    is_down[0] = False
    await a_while(300)
    assert values(broker) == {}
    await broker.stop()


async def _reason_after(prepare: Callable[[Bucket, Broker], None]) -> dict[tuple[str, str, str], float]:
    bucket = Bucket()
    broker = Broker(bucket).start()
    broker.lead(0)
    broker.fill(2)
    prepare(bucket, broker)
    await a_while(20)
    found = values(broker)
    broker.follow(1)
    assert values(broker) == {}
    await broker.crash()
    return found


@staged
async def test_copies_that_need_an_operator_are_shown() -> None:
    def with_large_metadata(bucket: Bucket, _broker: Broker) -> None:
        bucket.storage.custom_metadata = bytes(129)

    def with_rot(_bucket: Bucket, broker: Broker) -> None:
        rot(broker, 10)

    assert await _reason_after(with_large_metadata) == {("blocked", "copy", "custom_metadata"): 1}
    assert await _reason_after(with_rot) == {("blocked", "copy", "damaged_segment"): 1}


@staged
async def test_deletions_of_a_deposed_leader_are_counted_as_refused() -> None:
    cluster = Cluster()
    await cluster.depose_first()
    assert cluster.second.metrics.refused_deletions == 0
    cluster.first.configure(retention_ms=MINUTE_MS)
    await a_while(5 * 60)
    refused = values(cluster.first)["refused_total", "delete", "later_leader"]
    assert refused > 0
    await a_while(60)
    assert values(cluster.first)["refused_total", "delete", "later_leader"] > refused
    assert cluster.second.metrics.refused_deletions == 0
    await cluster.stop()
