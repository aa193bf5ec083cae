"""Faults of the object store under three brokers: lost and damaged objects, stale listings, slow responses,
throttling, and aborted uploads."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition

from protocol.primitives import uuid_to_text
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.segment_metadata import RemoteSegment
from storage.tiered.stores.s3 import S3Store
from storage.tiered.stores.unfinished_uploads import UnfinishedUpload
from tests.support.clients.checkable_records import Recipe, read_back, write
from tests.support.clients.partition_states import until, wait_until_whole
from tests.support.clients.remote_storage_view import KEY_PREFIX
from tests.support.processes.s3_proxy import Fault
from tests.support.processes.s3_server import unavailable_reason
from tests.support.processes.tiered_cluster import SEGMENT_BYTES, TieredCluster

pytestmark = pytest.mark.integration

SIZE = 16 << 10
MIB = (1 << 20) // SIZE
RECIPE = Recipe(SIZE, time.time_ns() // 1_000_000 - 3_600_000)
LEFT_LOCAL = 3 * SEGMENT_BYTES
PART_BYTES = 5 << 20
"""The minimum part size of S3; larger objects are uploaded in parts."""


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredCluster]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with TieredCluster(tmp_path_factory.mktemp("faults"), seed=8) as running:
        yield running


@contextmanager
def fault_injected(tier: TieredCluster, fault: Fault, share: float = 1.0, **where: str) -> Iterator[Callable[[], bool]]:
    """Inject a fault into the brokers' requests. Yield a check whether it has struck, which must hold at the end."""
    before = tier.proxy.counts().get(fault, 0)

    def has_struck() -> bool:
        return tier.proxy.counts().get(fault, 0) > before

    tier.proxy.strike(fault, share, **where)
    try:
        yield has_struck
    finally:
        tier.proxy.relent()
    assert share < 1 or has_struck()


def fill(tier: TieredCluster, topic: str, mebibytes: int = 5, **config: str) -> None:
    """Create a topic of which all but the newest segments are remote only."""
    tier.create(topic, [1, 2, 3], **config)
    write(tier.bootstrap, topic, RECIPE, 0, range(mebibytes * MIB))
    wait_until_remote(tier, topic)


def wait_until_remote(tier: TieredCluster, topic: str) -> None:
    until(
        lambda: (
            len(tier.finished(topic)) >= 2 and all(tier.local_bytes(each, topic) <= LEFT_LOCAL for each in (1, 2, 3))
        )
    )


def check_read(tier: TieredCluster, topic: str, end: int, start: int = 0) -> None:
    """Check that every record from `start` to `end` is delivered once and unchanged."""
    found = read_back(tier.bootstrap, topic, RECIPE, {0: end}, {0: start})
    assert found.faults == []
    assert found.count == end - start


def objects_of(tier: TieredCluster, segment: RemoteSegment) -> dict[ObjectSuffix, str]:
    keys = ObjectKeys(KEY_PREFIX)
    return {suffix: keys.key(segment, suffix) for suffix in ObjectSuffix}


def check_bucket(tier: TieredCluster, topic: str) -> None:
    """Wait until the bucket holds exactly the objects of the segments in the remote log metadata."""
    until(lambda: tier.bucket(topic).segments == tier.expected_objects(topic))


def test_damaged_bytes_are_neither_delivered_nor_cached(tier: TieredCluster) -> None:
    fill(tier, "damaged")
    with fault_injected(tier, Fault.CORRUPT_BODY) as has_struck, closing(_consumer(tier, "damaged")) as consumer:
        check_nothing_comes(consumer, has_struck, least_s=4)
        tier.proxy.relent()
        first = until(lambda: next((each for each in consumer.consume(1, 1.0) if not each.error()), None))
        assert RECIPE.fault(first, 0) is None
    check_read(tier, "damaged", 5 * MIB)
    _restart_brokers(tier)
    with fault_injected(tier, Fault.CORRUPT_BODY, 0.5):
        check_read(tier, "damaged", 5 * MIB)


def check_nothing_comes(consumer: Consumer, has_struck: Callable[[], bool], *, least_s: float) -> None:
    """Check that no record is delivered for `least_s` seconds after the fault has struck."""

    def is_over() -> bool:
        came = consumer.consume(100, 0.2)
        assert all(each.error() for each in came), "a record was delivered from a damaged segment"
        return has_struck()

    until(is_over)
    deadline = time.monotonic() + least_s
    while time.monotonic() < deadline:
        is_over()


def _consumer(tier: TieredCluster, topic: str) -> Consumer:
    settings = {"bootstrap.servers": tier.bootstrap, "group.id": "nobody", "check.crcs": True, "log_level": 0}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def test_lost_object_fails_only_reads_that_need_it(tier: TieredCluster) -> None:
    fill(tier, "lost")
    lost = tier.finished("lost")[1]
    tier.objects.joinpath(objects_of(tier, lost)[ObjectSuffix.LOG]).unlink()
    _restart_brokers(tier)
    check_read(tier, "lost", lost.start_offset)
    check_read(tier, "lost", 5 * MIB, lost.end_offset + 1)
    with pytest.raises(AssertionError, match="no record came"):
        read_back(tier.bootstrap, "lost", RECIPE, {0: lost.end_offset + 1}, {0: lost.start_offset}, patience_s=3)
    said = tier.run_remote("verify", "--topic", "lost", "--grace-ms", "0")
    assert said.returncode == 1
    name = f"{lost.start_offset:020d}-{uuid_to_text(lost.id.id)}"
    assert f"dangling: {name}, missing log" in said.stdout
    tier.remote("collect", "--topic", "lost", "--grace-ms", "0")
    assert lost in tier.finished("lost"), "only retention deletes a segment whose object is missing; it may come back"
    check_read(tier, "lost", 5 * MIB, lost.end_offset + 1)


def test_follower_with_the_records_serves_a_lost_segment(tier: TieredCluster) -> None:
    """The third broker applies local retention once an hour, so that it keeps what the others have deleted."""
    keeper, usual = tier.brokers[3], tier.brokers[3].settings
    keeper.kill()
    keeper.settings = {**usual, "log.retention.check.interval.ms": "3600000"}
    keeper.start()
    tier.create("kept", [1, 2, 3])
    write(tier.bootstrap, "kept", RECIPE, 0, range(5 * MIB))
    until(
        lambda: len(tier.finished("kept")) >= 2 and all(tier.local_bytes(each, "kept") <= LEFT_LOCAL for each in (1, 2))
    )
    lost = tier.finished("kept")[1]
    tier.objects.joinpath(objects_of(tier, lost)[ObjectSuffix.LOG]).unlink()
    for each in (1, 2):  # one by one, so that the keeper never leads
        tier.brokers[each].kill()
        tier.brokers.start(each)
        wait_until_whole(tier.bootstrap, "kept")
    check_read(tier, "kept", 5 * MIB)
    assert tier.brokers[1].metric("ottla_remote_reads_from_followers_total") > 0
    assert "local log of a follower is read" in tier.brokers[1].log_text
    keeper.settings = usual
    _restart_brokers(tier)  # the leader too: it keeps what it has delivered for a second
    wait_until_remote(tier, "kept")
    with pytest.raises(AssertionError, match="no record came"):
        read_back(tier.bootstrap, "kept", RECIPE, {0: lost.end_offset + 1}, {0: lost.start_offset}, patience_s=3)


def test_consumer_goes_on_after_a_lost_segment_is_given_up(tier: TieredCluster) -> None:
    fill(tier, "given-up")
    lost = tier.finished("given-up")[1]
    tier.objects.joinpath(objects_of(tier, lost)[ObjectSuffix.LOG]).unlink()
    _restart_brokers(tier)
    where = ("--topic", "given-up", "--partition", "0")
    with closing(_consumer(tier, "given-up")) as consumer:
        consumer.assign([TopicPartition("given-up", 0, lost.start_offset)])
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            assert not [each for each in consumer.consume(100, 0.2) if not each.error()], "a lost record came"
        assert "1 segments lost" in tier.run_remote("give-up", *where).stdout
        offsets = ("--from-offset", str(lost.start_offset), "--to-offset", str(lost.end_offset))
        beyond = ("--from-offset", str(lost.start_offset), "--to-offset", str(lost.end_offset + 1))
        assert "may still be read" in tier.run_remote("give-up", *where, *beyond).stderr
        tier.remote("give-up", *where, *offsets, "--yes")
        came: list[int] = []

        def has_come() -> bool:
            came.extend(each.offset() or 0 for each in consumer.consume(100, 0.2) if not each.error())
            return bool(came)

        until(has_come)
        assert came[0] == lost.end_offset + 1
    until(lambda: lost.id not in [each.id for each in tier.finished("given-up")])
    _restart_brokers(tier)
    with closing(_consumer(tier, "given-up")) as consumer:
        consumer.assign([TopicPartition("given-up", 0, lost.start_offset)])
        came.clear()
        until(has_come)
        assert came[0] == lost.end_offset + 1, "restarted brokers still know the hole"
    check_read(tier, "given-up", lost.start_offset)
    check_read(tier, "given-up", 5 * MIB, lost.end_offset + 1)
    assert tier.run_remote("verify", "--topic", "given-up").returncode == 0


def _restart_brokers(tier: TieredCluster) -> None:
    """Restart all brokers to clear their caches."""
    for broker in tier.brokers.brokers.values():
        broker.kill()
    tier.brokers.start(1, 2, 3)


def test_temporarily_missing_object_is_read_later(tier: TieredCluster) -> None:
    fill(tier, "hidden")
    with (
        fault_injected(tier, Fault.NO_SUCH_KEY, key_part=".log") as has_struck,
        closing(_consumer(tier, "hidden")) as consumer,
    ):
        check_nothing_comes(consumer, has_struck, least_s=2)
    check_read(tier, "hidden", 5 * MIB)


def test_collection_with_a_stale_listing_deletes_no_live_object(tier: TieredCluster) -> None:
    by_proxy = ("--topic", "stale", "--grace-ms", "0", "--override", f"{ENDPOINT}={tier.proxy.endpoint}")
    fill(tier, "stale", 3)
    old = tier.finished("stale")
    tier.remote("collect", *by_proxy)
    write(tier.bootstrap, "stale", RECIPE, 0, range(3 * MIB, 6 * MIB))
    until(lambda: len(tier.finished("stale")) > len(old) + 1)
    # Without a grace period a running copy counts as abandoned.
    until(lambda: len(tier.segments("stale")) == len(tier.finished("stale")))
    with fault_injected(tier, Fault.STALE_LIST):
        said = tier.remote("collect", *by_proxy)
        assert "\n0 segments and 0 other objects removed" in f"\n{said}"
        assert tier.run_remote("verify", *by_proxy).returncode == 0
    assert {each.id for each in old} < {each.id for each in tier.finished("stale")}
    check_bucket(tier, "stale")
    check_read(tier, "stale", 6 * MIB)


ENDPOINT = "rsm.config.storage.s3.endpoint.url"


@pytest.mark.parametrize("fault", [Fault.CUT_REQUEST, Fault.LOST_ANSWER, Fault.THROTTLED], ids=str)
def test_failed_uploads_leave_no_objects(tier: TieredCluster, fault: Fault) -> None:
    topic = f"broken-{fault.name.lower()}"
    tier.create(topic, [1, 2, 3])
    with fault_injected(tier, fault, method="PUT") as has_struck:
        write(tier.bootstrap, topic, RECIPE, 0, range(3 * MIB))
        until(lambda: tier.segments(topic))
        until(has_struck)
        time.sleep(1)
        assert tier.finished(topic) == []
    with fault_injected(tier, fault, 0.3, method="PUT"):
        wait_until_remote(tier, topic)
    check_bucket(tier, topic)
    check_read(tier, topic, 3 * MIB)
    # Without a grace period a running copy counts as abandoned, so verify succeeds once the last copy has finished.
    until(lambda: tier.run_remote("verify", "--topic", topic, "--grace-ms", "0", "--deep").returncode == 0)


def test_unfinished_multipart_uploads_are_collected(tier: TieredCluster) -> None:
    tier.create("parts", [1, 2, 3], segment_bytes=str(2 * PART_BYTES), local_retention_bytes=str(2 * PART_BYTES))
    tier.proxy.strike(Fault.FAILED, method="PUT", key_part="partNumber=2")
    tier.proxy.strike(Fault.FAILED, method="DELETE", key_part="uploadId=")
    write(tier.bootstrap, "parts", RECIPE, 0, range(12 * MIB))
    until(lambda: len(uploads(tier, "parts")) > 1)  # the next attempt starts after the previous one is given up
    assert "unfinished upload" in tier.run_remote("verify", "--topic", "parts", "--grace-ms", "0").stdout
    tier.proxy.relent()
    until(lambda: tier.finished("parts"))
    left = uploads(tier, "parts")
    assert left, "brokers have aborted the uploads; none is left to collect"
    tier.remote("collect", "--topic", "parts")
    assert uploads(tier, "parts") == left, "an upload younger than the grace period was collected"
    tier.remote("collect", "--topic", "parts", "--grace-ms", "0")
    assert uploads(tier, "parts") == []
    check_bucket(tier, "parts")
    check_read(tier, "parts", 12 * MIB)


def uploads(tier: TieredCluster, topic: str) -> list[UnfinishedUpload]:
    """Return the unfinished uploads that the server holds, bypassing the proxy."""
    with closing(S3Store(tier.server.settings)) as store:
        return list(store.unfinished_uploads(f"{KEY_PREFIX}{topic}-"))


def test_slow_response_bodies_do_not_delay_other_reads(tier: TieredCluster) -> None:
    fill(tier, "slow")
    with fault_injected(tier, Fault.SLOW_BODY) as has_struck, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(check_read, tier, "slow", 5 * MIB)
        until(has_struck)
        write(tier.bootstrap, "slow", RECIPE, 0, range(5 * MIB, 6 * MIB))
        reading.result()
        check_read(tier, "slow", 6 * MIB)
