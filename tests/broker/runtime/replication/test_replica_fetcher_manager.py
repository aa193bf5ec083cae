"""The drivers of the fetcher core; complete scenarios are in tests/scenarios/replication."""

import pytest

from broker.metadata.image.config_image import ResourceType
from broker.metrics.fetchers import fetcher_families
from broker.replication.fetch_plan import FetcherSettings, Sender
from broker.replication.fetch_state import FetchPhase
from broker.runtime.partitions.fetcher_assignments import FetcherManager
from broker.runtime.partitions.hosted_follower import HostedFollower
from broker.runtime.replication.follower_replica import FollowerReplica
from broker.runtime.replication.replica_fetcher import SLICE_BYTES
from broker.runtime.replication.replica_fetcher_manager import ReplicaFetcherManager, fetcher_index
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId
from tests.support.fakes.runtimes import make_runtime
from tests.support.harnesses.fetch_harness import RECORD, FakeReplica, FollowerHarness


def fits(replica: HostedFollower, fetchers: ReplicaFetcherManager) -> tuple[FollowerReplica, FetcherManager]:
    """Check the types alone: a hosted follower is a FollowerReplica, the manager is a FetcherManager."""
    return replica, fetchers


def bench_with(*names: str, records: int = 3) -> FollowerHarness:
    """Return a harness: broker 1 leads, broker 9 follows."""
    harness = FollowerHarness()
    harness.leader(1)
    for name in names:
        harness.lead(1, name, 1)
        harness.write(1, name, records)
        harness.follow(name, 1, 1)
    harness.advance(10)
    return harness


@pytest.mark.parametrize(
    ("topic", "partition", "count", "expected"),
    [("t", 0, 3, 2), ("orders", 0, 4, 1), ("orders", 1, 4, 0), ("__consumer_offsets", 49, 8, 6), ("anything", 5, 1, 0)],
)
def test_fetcher_index_equals_kafkas(topic: str, partition: int, count: int, expected: int) -> None:
    """abs(31 * topic.hashCode() + partition) % count, computed by Java."""
    assert fetcher_index(topic, partition, count) == expected


def test_fetched_bytes_count_for_the_topic_and_the_fetcher() -> None:
    harness = bench_with("t-0", records=3)
    assert harness.replicas["t-0"].traffic.replication_bytes_in == 3 * RECORD.size
    (fetcher,) = harness.fetchers.fetchers()
    assert fetcher.meters.bytes == 3 * RECORD.size
    assert fetcher.meters.requests == 2


def test_large_answer_is_appended_in_slices_before_the_next_request() -> None:
    harness = FollowerHarness()
    leader = harness.leader(1)
    leader.response_max_records = 1_000_000
    count = SLICE_BYTES // RECORD.size + 1
    for name in ("t-0", "t-1", "t-2"):
        harness.lead(1, name, 1)
        harness.write(1, name, count)
        harness.follow(name, 1, 1)
    fetcher = harness.fetchers.fetchers()[0]
    harness.advance(2)
    while harness.loop._ready:
        handle = harness.loop._ready.popleft()
        handle._run()
        ends = [harness.replicas[name].log.end for name in ("t-0", "t-1", "t-2")]
        assert fetcher.core.is_waiting == (ends == [count] * 3)
    assert fetcher.core.is_waiting


def test_slices_of_a_former_endpoint_are_not_appended() -> None:
    harness = FollowerHarness()
    harness.leader(1).response_max_records = 1_000_000
    for name in ("t-0", "t-1"):
        harness.lead(1, name, 1)
        harness.write(1, name, SLICE_BYTES // RECORD.size + 1)
        harness.follow(name, 1, 1)
    appended: list[str] = []

    def say(line: str) -> None:
        appended.append(line)
        harness.unfollow("t-1")

    harness.replicas["t-0"]._say = say
    harness.advance(10)
    assert len(appended) == 1
    assert harness.replicas["t-1"].log.end == 0


def test_fetcher_sends_no_request_while_records_wait_for_a_flush() -> None:
    """The next request would acknowledge the records."""
    harness = bench_with("t-0", "t-1")
    (fetcher,) = harness.fetchers.fetchers()
    replica = harness.replicas["t-0"]
    replica.is_flushed = False
    harness.write(1, "t-0", 1)
    harness.advance(1_000)
    assert not fetcher.core.is_waiting
    flush(replica)
    harness.advance(10)
    assert fetcher.core.is_waiting


def flush(replica: FakeReplica) -> None:
    replica.is_flushed = True
    waiting, replica.on_flushed = replica.on_flushed, []
    for callback in waiting:
        callback()


def test_added_replica_with_unflushed_records_blocks_requests() -> None:
    """The replica led until now and has unflushed records of its own."""
    harness = bench_with("t-0")
    (fetcher,) = harness.fetchers.fetchers()
    harness.unfollow("t-0")
    harness.replicas["t-0"].is_flushed = False
    harness.follow("t-0", 1, 1)
    requests = fetcher.meters.requests
    harness.advance(1_000)
    assert fetcher.meters.requests == requests
    flush(harness.replicas["t-0"])
    harness.advance(10)
    assert fetcher.meters.requests == requests + 1


def test_removing_an_unflushed_replica_unblocks_requests() -> None:
    harness = bench_with("t-0", "t-1")
    (fetcher,) = harness.fetchers.fetchers()
    harness.replicas["t-0"].is_flushed = False
    harness.write(1, "t-0", 1)
    harness.advance(1_000)
    harness.unfollow("t-0")
    harness.advance(10)
    assert fetcher.core.is_waiting


def test_unregistered_leader_is_not_fetched_from() -> None:
    harness = FollowerHarness()
    harness.follow("t-0", 5, 1)
    harness.advance(10)
    assert harness.fetchers.fetchers() == []
    harness.leader(5)
    harness.lead(5, "t-0", 1)
    harness.write(5, "t-0", 1)
    harness.follow("t-0", 5, 1)
    harness.advance(10)
    assert harness.replicas["t-0"].log.end == 1


def test_new_leader_gets_its_own_fetcher_and_the_former_one_is_removed() -> None:
    harness = bench_with("t-0")
    harness.leader(2)
    harness.lead(2, "t-0", 2)
    harness.follow("t-0", 2, 2)
    harness.advance(10)
    assert [(each.leader_id, len(each.core.replicas)) for each in harness.fetchers.fetchers()] == [(2, 1)]
    assert harness.transport.open_count == 1


def test_fetcher_that_loses_and_gains_replicas_keeps_its_connection() -> None:
    harness = bench_with("t-0")
    harness.unfollow("t-0")
    harness.follow("t-0", 1, 1)
    harness.advance(10)
    assert len(harness.transport.connections) == 1


def test_truncating_replica_stays_with_its_fetcher_on_resize() -> None:
    """During the truncation the log end is unknown, and a request would acknowledge records."""
    harness = bench_with("t-0", "t-1")
    replica = harness.replicas["t-1"]
    replica.truncation_s = 0.5
    harness.led(1, "t-1").log.truncate(1)
    replica.log.append([replica.log.entries[-1]._replace(offset=3, epoch=0)])
    harness.led(1, "t-1").refusals.append(ErrorCode.OFFSET_OUT_OF_RANGE)
    harness.leaders[1].look_again()
    harness.advance(100)
    assert harness.phase("t-1") is FetchPhase.TRUNCATING
    harness.configure(ResourceType.BROKER, "", "num.replica.fetchers", "4")
    harness.advance(100)
    assert harness.phase("t-1") is FetchPhase.TRUNCATING
    harness.advance(1000)
    assert harness.phase("t-1") is FetchPhase.FETCHING


def test_closed_manager_sends_and_does_nothing() -> None:
    harness = bench_with("t-0")
    harness.write(1, "t-0", 1)
    harness.fetchers.close()
    harness.follow("t-0", 1, 2)
    harness.advance(2000)
    assert harness.replicas["t-0"].log.end == 3
    assert harness.transport.open_count == 0
    assert harness.loop.live_timers == 0


def test_truncation_that_ends_after_closing_is_ignored() -> None:
    harness = bench_with("t-0")
    replica = harness.replicas["t-0"]
    replica.truncation_s = 0.5
    harness.led(1, "t-0").log.truncate(1)
    harness.led(1, "t-0").refusals.append(ErrorCode.OFFSET_OUT_OF_RANGE)
    harness.leaders[1].look_again()
    harness.advance(100)
    assert harness.phase("t-0") is FetchPhase.TRUNCATING
    harness.fetchers.close()
    harness.advance(2000)
    assert replica.log.end == 1


def test_failing_log_directory_during_truncation_fails_the_replica() -> None:
    harness = bench_with("t-0")
    harness.led(1, "t-0").log.truncate(1)
    harness.replicas["t-0"].fault = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    harness.led(1, "t-0").refusals.append(ErrorCode.OFFSET_OUT_OF_RANGE)
    harness.leaders[1].look_again()
    harness.advance(100)
    assert harness.phase("t-0") is FetchPhase.FAILED


def test_refused_truncation_is_followed_by_a_fetch() -> None:
    harness = bench_with("t-0")
    harness.led(1, "t-0").log.truncate(1)
    harness.replicas["t-0"].refuses_cuts = True
    harness.led(1, "t-0").refusals.append(ErrorCode.OFFSET_OUT_OF_RANGE)
    harness.leaders[1].look_again()
    harness.advance(20)
    assert harness.phase("t-0") is FetchPhase.DELAYED


def test_failed_bounds_lookup_is_retried_later() -> None:
    harness = bench_with("t-0", "t-1")
    harness.led(1, "t-0").refusals.append(ErrorCode.OFFSET_OUT_OF_RANGE)
    harness.leaders[1].look_again()
    harness.transport.down.add(harness.leaders[1].endpoint)
    harness.advance(3)
    assert harness.phase("t-0") is FetchPhase.DELAYED
    assert harness.phase("t-1") is FetchPhase.FETCHING


def test_idle_replicas_cost_one_request_per_half_second() -> None:
    harness = bench_with(*(f"t-{index}" for index in range(50)), records=0)
    (fetcher,) = harness.fetchers.fetchers()
    before = fetcher.meters.requests
    harness.advance(10_000)
    assert 18 <= fetcher.meters.requests - before <= 21


def test_metrics_show_the_maximum_over_all_fetchers() -> None:
    harness = bench_with("t-0", "t-1")
    harness.led(1, "t-0").log.high_watermark = 10
    harness.led(1, "t-1").refusals.append(ErrorCode.FENCED_LEADER_EPOCH)
    harness.leaders[1].look_again()
    harness.advance(600)
    shown = {
        (family.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in fetcher_families(harness.fetchers.figures)
        for sample in family.read()
    }
    manager, replica = "kafka_server_replicafetchermanager_", (("clientid", "Replica"),)
    thread = ("clientid", "ReplicaFetcherThread-0-1")
    assert shown[f"{manager}maxlag", replica] == 7
    assert shown[f"{manager}failedpartitionscount", replica] == 1
    assert shown[f"{manager}deadthreadcount", replica] == 0
    assert 0 < shown[f"{manager}minfetchrate", replica] < 1
    lag = "kafka_server_fetcherlagmetrics_consumerlag"
    assert shown[lag, (thread, ("partition", "0"), ("topic", "t"))] == 7
    broker = (("brokerhost", "broker-1"), ("brokerport", "9092"), thread)
    assert shown["kafka_server_fetcherstats_bytes_total", broker] == 6 * RECORD.size


def test_metrics_are_zero_without_fetchers() -> None:
    values = [sample.value for family in fetcher_families(list) for sample in family.read()]
    assert values == [0, 0, 0, 0]


def test_request_rate_decays_within_a_minute() -> None:
    harness = bench_with("t-0")
    (fetcher,) = harness.fetchers.fetchers()
    harness.advance(300_000)
    now_s = harness.loop.time()
    assert fetcher.meters.rate(now_s) == pytest.approx(2, rel=0.05)
    assert fetcher.meters.rate(now_s + 600) == pytest.approx(0, abs=0.001)


def test_fetching_begins_after_registration() -> None:
    """Without a broker epoch, the leader could mistake the broker for its former incarnation (KIP-903)."""
    harness = bench_with("t-0", "t-1")
    followed = [harness.replicas[name] for name in ("t-0", "t-1")]
    epochs = [-1]
    fetchers = ReplicaFetcherManager(
        make_runtime(harness.loop),
        harness.transport,
        harness.metadata,
        lambda: Sender(BrokerId(harness.BROKER_ID), BrokerEpoch(epochs[-1])),
        listener="INTERNAL",
        settings=FetcherSettings(),
        fetcher_count=lambda: 1,
    )
    for replica in followed:
        fetchers.follow(replica)
    fetchers.unfollow(followed[0])
    assert fetchers.fetchers() == []
    with pytest.raises(AssertionError, match="before the broker is registered"):
        fetchers.begin()
    assert fetchers.fetchers() == []
    epochs.append(91)
    fetchers.begin()
    (fetcher,) = fetchers.fetchers()
    assert [each.partition for each in fetcher.core.replicas.all()] == [followed[1]]
