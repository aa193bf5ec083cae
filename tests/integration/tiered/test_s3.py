"""Tiered topics on three brokers and a real S3 server that fails, drops responses and becomes unreachable (KIP-405)."""

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from storage.tiered.segment_metadata import SegmentState
from tests.support.clients.checkable_records import Recipe, offsets_by_timestamp, read_back, write
from tests.support.clients.partition_states import until, wait_for_state, wait_until_whole
from tests.support.clients.replicated_load import admin_of
from tests.support.processes.ottla_node import run_ottla
from tests.support.processes.s3_server import unavailable_reason
from tests.support.processes.tiered_cluster import SEGMENT_BYTES, TieredCluster, clipped

pytestmark = pytest.mark.integration

SIZE = 16 << 10
MIB = (1 << 20) // SIZE
"""Approximate number of records per mebibyte."""
NOW_MS = time.time_ns() // 1_000_000
RECIPE = Recipe(SIZE, NOW_MS - 3_600_000)
LEFT_LOCAL = 3 * SEGMENT_BYTES
"""Local log size of a retention of one segment: it, the active segment, and a segment that is being copied."""


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredCluster]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with TieredCluster(tmp_path_factory.mktemp("tier"), seed=405) as running:
        yield running


@pytest.fixture(autouse=True)
def whole(tier: TieredCluster) -> None:
    """Restore the cluster after each test: all brokers run and the store answers."""
    tier.proxy.set_share(0)
    tier.proxy.come_back()
    if dead := [broker.id for broker in tier.brokers.brokers.values() if not broker.is_running]:
        tier.brokers.start(*dead)


@contextmanager
def failing(tier: TieredCluster, share: float = 0.1) -> Iterator[None]:
    tier.proxy.set_share(share)
    try:
        yield
    finally:
        tier.proxy.set_share(0)


def produce(tier: TieredCluster, topic: str, first: int, end: int, partition: int = 0, recipe: Recipe = RECIPE) -> None:
    write(tier.bootstrap, topic, recipe, partition, range(first, end))


def wait_until_remote(tier: TieredCluster, topic: str, *brokers: int, partition: int = 0) -> None:
    """Wait until all but the newest segments are remote only."""
    until(
        lambda: (
            len(tier.finished(topic, partition)) >= 2
            and all(tier.local_bytes(each, topic, partition) <= LEFT_LOCAL for each in brokers)
        )
    )


def settled_local_start(tier: TieredCluster, topic: str) -> int:
    """Return the local log start offset once the leader has deleted all local segments that it may.

    The offset does not move while the store is unreachable. One segment beside the active one must not be remote, or
    local retention keeps a remote segment.
    """
    until(lambda: (found := tier.bounds(topic)[0]).local_start == (found.remote_end or 0) + 1)
    settled = tier.bounds(topic)[0].local_start
    assert settled is not None
    return settled


def check_read(
    tier: TieredCluster,
    topic: str,
    end: int,
    start: int = 0,
    recipe: Recipe = RECIPE,
    more: Mapping[str, str] | None = None,
) -> None:
    """Check that every record from `start` to `end` is delivered once and unchanged."""
    found = read_back(tier.bootstrap, topic, recipe, {0: end}, {0: start}, more=more)
    assert found.faults == []
    assert found.count == end - start
    assert found.crcs.get(0, 0) == recipe.crc(0, range(start, end))


def check_bucket(tier: TieredCluster, topic: str) -> None:
    """Wait until the bucket holds exactly the objects of the segments in the remote log metadata."""
    until(lambda: tier.bucket(topic).segments == tier.expected_objects(topic))


def check_epochs(tier: TieredCluster, topic: str, leader: int) -> None:
    """Wait until every remote segment's leader epochs match the leader's checkpoint, which lags a moment behind."""

    def are_equal() -> bool:
        epochs = tier.leader_epochs(leader, topic)
        return all(
            one.leader_epochs == clipped(epochs, one.start_offset, one.end_offset) for one in tier.finished(topic)
        )

    until(are_equal)


def leader_of(tier: TieredCluster, topic: str) -> int:
    return wait_for_state(tier.bootstrap, topic, lambda state: state.leader > 0)[0].leader


def make_leader(tier: TieredCluster, topic: str, broker_id: int) -> None:
    """Elect a live in-sync replica leader by making it the preferred one."""
    wait_until_whole(tier.bootstrap, topic)
    tier.brokers.ottla(
        "leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0", check=False
    )
    wait_for_state(tier.bootstrap, topic, lambda state: state.leader == broker_id)


def test_log_is_read_completely_despite_store_failures_and_a_killed_leader(tier: TieredCluster) -> None:
    tier.create("whole", [1, 2, 3], [2, 3, 1])
    ends = {0: 12 * MIB, 1: 12 * MIB}
    with failing(tier):
        produce(tier, "whole", 0, 4 * MIB)
        produce(tier, "whole", 0, 4 * MIB, partition=1)
        tier.proxy.vanish()
        began = time.monotonic()
        produce(tier, "whole", 4 * MIB, 8 * MIB)
        produce(tier, "whole", 4 * MIB, 8 * MIB, partition=1)  # producers are not affected
        time.sleep(max(0.0, began + 5 - time.monotonic()))
        tier.proxy.come_back()
        until(lambda: len(tier.finished("whole")) >= 2)
        tier.brokers[1].kill()
        produce(tier, "whole", 8 * MIB, 12 * MIB)
        produce(tier, "whole", 8 * MIB, 12 * MIB, partition=1)
        tier.brokers.start(1)
        wait_until_whole(tier.bootstrap, "whole")
        for partition in ends:
            wait_until_remote(tier, "whole", 1, 2, 3, partition=partition)
        found = read_back(tier.bootstrap, "whole", RECIPE, ends)
        assert found.faults == []
        assert found.crcs == {partition: RECIPE.crc(partition, range(end)) for partition, end in ends.items()}
        asked = [0, 1, 3 * MIB, 6 * MIB + 7, 11 * MIB, 12 * MIB - 1]
        times = {partition: [RECIPE.timestamp_ms(number) for number in asked] for partition in ends}
        assert offsets_by_timestamp(tier.bootstrap, "whole", times) == dict.fromkeys(ends, asked)
        check_read(tier, "whole", 12 * MIB, more={"isolation.level": "read_committed"})
    for segment in tier.segments("whole"):
        assert segment.end_offset < tier.last_stable_offset("whole", segment.id.partition.partition)
    check_epochs(tier, "whole", leader_of(tier, "whole"))
    tier.remote("collect", "--topic", "whole", "--grace-ms", "0")
    check_bucket(tier, "whole")
    tier.remote("verify", "--topic", "whole", "--grace-ms", "0", "--deep")


def test_records_lost_by_an_unclean_election_are_not_read_from_remote(tier: TieredCluster) -> None:
    tier.create("unclean", [1, 2], unclean_leader_election_enable="true", min_insync_replicas="1")
    other = Recipe(SIZE, RECIPE.first_ms + 1_000_000)
    produce(tier, "unclean", 0, 3 * MIB)
    wait_until_whole(tier.bootstrap, "unclean")
    tier.brokers[2].kill()
    wait_for_state(tier.bootstrap, "unclean", lambda state: state.isr == [1])
    produce(tier, "unclean", 3 * MIB, 6 * MIB)
    until(lambda: any(segment.end_offset > 4 * MIB for segment in tier.finished("unclean")))
    tier.brokers[1].kill()
    tier.brokers.start(2)
    wait_for_state(tier.bootstrap, "unclean", lambda state: state.leader == 2)
    [bounds] = tier.bounds("unclean").values()
    assert bounds.end == 3 * MIB
    produce(tier, "unclean", 3 * MIB, 9 * MIB, recipe=other)
    wait_until_remote(tier, "unclean", 2)

    def check() -> None:
        check_read(tier, "unclean", 3 * MIB)
        check_read(tier, "unclean", 9 * MIB, 3 * MIB, recipe=other)

    check()
    tier.brokers.start(1)
    make_leader(tier, "unclean", 1)
    wait_until_remote(tier, "unclean", 1, 2)
    check()
    epochs = tier.leader_epochs(1, "unclean")
    lost = [
        one
        for one in tier.finished("unclean")
        if one.leader_epochs != clipped(epochs, one.start_offset, one.end_offset)
    ]
    assert lost, "no remote segments of the old leader's log are left to ignore"


def test_wiped_broker_starts_after_the_remote_log(tier: TieredCluster) -> None:
    tier.create("wiped", [3, 1, 2])
    produce(tier, "wiped", 0, 10 * MIB)
    wait_until_remote(tier, "wiped", 1, 2, 3)
    tier.brokers[3].kill()
    wait_for_state(tier.bootstrap, "wiped", lambda state: 3 not in state.isr)
    produce(tier, "wiped", 10 * MIB, 11 * MIB)
    shutil.rmtree(tier.brokers[3].data)
    tier.brokers.start(3)
    wait_until_whole(tier.bootstrap, "wiped")
    first = min(int(path.stem) for path in tier.partition_directory(3, "wiped").glob("*.log"))
    assert first > 0
    until(lambda: (tier.bounds("wiped")[0].local_start or 0) >= first)  # the leader deletes local segments with a delay
    until(lambda: tier.leader_epochs(3, "wiped") == tier.leader_epochs(leader_of(tier, "wiped"), "wiped"))
    make_leader(tier, "wiped", 3)
    [after] = tier.bounds("wiped").values()
    assert (after.start, after.end) == (0, 11 * MIB)
    assert (after.local_start or 0) >= first
    check_read(tier, "wiped", 11 * MIB)
    produce(tier, "wiped", 11 * MIB, 14 * MIB)
    wait_until_remote(tier, "wiped", 1, 2, 3)
    check_read(tier, "wiped", 14 * MIB)
    check_epochs(tier, "wiped", 3)


def test_follower_serves_remote_records(tier: TieredCluster) -> None:
    tier.create("nearby", [1, 2, 3])
    produce(tier, "nearby", 0, 6 * MIB)
    wait_until_remote(tier, "nearby", 1, 2, 3)
    name = "kafka_server_brokertopicmetrics_bytesout_total"
    before = tier.brokers[3].metric(name, topic="nearby")
    leader_before = tier.brokers[1].metric(name, topic="nearby")
    check_read(tier, "nearby", 6 * MIB, more={"client.rack": "rack-3"})
    assert tier.brokers[3].metric(name, topic="nearby") - before > 5 * (1 << 20)
    assert tier.brokers[1].metric(name, topic="nearby") == leader_before


def test_delete_records_works_within_a_remote_segment(tier: TieredCluster) -> None:
    tier.create("deleted", [1, 2, 3])
    produce(tier, "deleted", 0, 6 * MIB)
    wait_until_remote(tier, "deleted", 1, 2, 3)
    third = tier.finished("deleted")[2]
    start = third.start_offset + 5
    admin = AdminClient({"bootstrap.servers": tier.bootstrap})
    where = TopicPartition("deleted", 0, start)
    [result] = admin.delete_records([where]).values()
    assert result.result(30).low_watermark == start
    until(lambda: tier.finished("deleted")[0] == third)
    check_bucket(tier, "deleted")
    assert tier.bounds("deleted")[0].start == start
    check_read(tier, "deleted", 6 * MIB, start)
    with closing(Consumer({"bootstrap.servers": tier.bootstrap, "group.id": "nobody"})) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition("deleted", 0), timeout=30)[0] == start
    at = {0: [RECIPE.timestamp_ms(0), RECIPE.timestamp_ms(start + 3)]}
    assert offsets_by_timestamp(tier.bootstrap, "deleted", at) == {0: [start, start + 3]}


@pytest.mark.parametrize(
    "limit",
    [{"retention_bytes": str(3 * SEGMENT_BYTES)}, {"retention_ms": "60000", "local_retention_ms": "60000"}],
    ids=["bytes", "ms"],
)
def test_retention_deletes_remote_segments(tier: TieredCluster, limit: dict[str, str]) -> None:
    topic = "-".join(["expired", *limit])
    tier.create(topic, [1, 2, 3])
    produce(tier, topic, 0, 6 * MIB)
    wait_until_remote(tier, topic, 1, 2, 3)
    tier.configure(topic, **limit)
    by_size = "retention_bytes" in limit
    until(lambda: len(tier.finished(topic)) <= (3 if by_size else 0))
    check_bucket(tier, topic)
    start = check_read_from_start(tier, topic, 6 * MIB)
    assert 0 < start < 6 * MIB if by_size else start > 0


def check_read_from_start(tier: TieredCluster, topic: str, end: int) -> int:
    """Read from the log start, again if retention overtakes the reader. Return the log start offset."""
    while True:
        start = tier.bounds(topic)[0].start
        assert start is not None
        try:
            check_read(tier, topic, end, start)
        except KafkaException:
            assert (tier.bounds(topic)[0].start or 0) > start
        else:
            return start


def test_deleted_topic_leaves_no_objects(tier: TieredCluster) -> None:
    tier.create("gone", [1, 2, 3], [2, 3, 1])
    produce(tier, "gone", 0, 4 * MIB)
    produce(tier, "gone", 0, 4 * MIB, partition=1)
    for partition in (0, 1):
        wait_until_remote(tier, "gone", 1, 2, 3, partition=partition)
    admin = admin_of(tier.bootstrap)  # keep a reference: its futures end with it
    with failing(tier):
        admin.delete_topics(["gone"])["gone"].result(30)
        until(lambda: not tier.bucket("gone").segments)
    until(lambda: not tier.bucket("gone").others)


def test_disabling_tiering_deletes_the_remote_log(tier: TieredCluster) -> None:
    """KIP-950: disable tiering with remote.log.delete.on.disable."""
    tier.create("disabled", [1, 2, 3])
    produce(tier, "disabled", 0, 5 * MIB)
    wait_until_remote(tier, "disabled", 1, 2, 3)
    tier.configure("disabled", remote_storage_enable="false", remote_log_delete_on_disable="true")
    until(lambda: not tier.bucket("disabled").segments)
    until(lambda: tier.bounds("disabled")[0].start)
    start = check_read_from_start(tier, "disabled", 5 * MIB)
    produce(tier, "disabled", 5 * MIB, 8 * MIB)
    check_read(tier, "disabled", 8 * MIB, start)
    assert not tier.bucket("disabled").segments


def config_at(tier: TieredCluster, broker_id: int, topic: str) -> str:
    """Return a topic config value as one broker reports it."""
    where = ("--bootstrap-server", tier.brokers[broker_id].bootstrap, "--entity-type", "topics", "--entity-name", topic)
    return run_ottla("configs", "--describe", *where).stdout


def test_disabled_copies_keep_the_remote_log_readable(tier: TieredCluster) -> None:
    """KIP-950: set remote.log.copy.disable."""
    tier.create("read-only", [1, 2, 3])
    produce(tier, "read-only", 0, 5 * MIB)
    wait_until_remote(tier, "read-only", 1, 2, 3)
    tier.configure("read-only", remote_log_copy_disable="true", local_retention_bytes="-2", local_retention_ms="-2")
    until(lambda: all("remote.log.copy.disable=true" in config_at(tier, each, "read-only") for each in (1, 2, 3)))
    until(lambda: all(each.state is SegmentState.COPY_FINISHED for each in tier.segments("read-only")))
    before = tier.finished("read-only")
    produce(tier, "read-only", 5 * MIB, 9 * MIB)
    time.sleep(1.5)
    assert tier.finished("read-only") == before
    check_read(tier, "read-only", 9 * MIB)
    tier.configure("read-only", remote_log_copy_disable="false", local_retention_bytes=str(SEGMENT_BYTES))
    until(lambda: len(tier.finished("read-only")) > len(before))
    wait_until_remote(tier, "read-only", 1, 2, 3)
    check_read(tier, "read-only", 9 * MIB)


def test_brokers_start_and_serve_local_records_without_the_store(tier: TieredCluster) -> None:
    tier.create("cold", [1, 2, 3])
    produce(tier, "cold", 0, 5 * MIB)
    wait_until_remote(tier, "cold", 1, 2, 3)
    tier.proxy.vanish()
    for broker in tier.brokers.brokers.values():
        broker.kill()
    tier.brokers.start(1, 2, 3)
    wait_until_whole(tier.bootstrap, "cold")
    produce(tier, "cold", 5 * MIB, 8 * MIB)
    local_start = settled_local_start(tier, "cold")
    assert local_start > 0
    check_read(tier, "cold", 8 * MIB, local_start)
    with pytest.raises(AssertionError, match="no record came"):
        read_back(tier.bootstrap, "cold", RECIPE, {0: 8 * MIB}, patience_s=2)
    tier.proxy.come_back()
    check_read(tier, "cold", 8 * MIB)
    wait_until_remote(tier, "cold", 1, 2, 3)
    check_read(tier, "cold", 8 * MIB)
