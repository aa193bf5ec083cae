"""Builds of remote log auxiliary state: outcomes of attempts and independence of other replicas.

How attempts go is in tests/scenarios/replication/remote*.txt.
"""

import pytest

from broker.metadata.image.config_image import ResourceType
from broker.replication.fetch_plan import FetcherSettings
from broker.replication.fetch_state import FetchPhase
from broker.runtime.replication.remote_log_aux_state import RemoteLogUnavailable
from protocol.ids import LeaderEpoch
from tests.support.harnesses.fetch_harness import FollowerHarness, LedPartition, fill, storage_error


def make_harness(*, is_tiering: bool = True) -> FollowerHarness:
    """Return a harness: broker 1 leads t-0, with 0 to 5 remote and 6 to 8 local, and u-0, with remote records only."""
    harness = FollowerHarness(settings=FetcherSettings(), is_tiering=is_tiering)
    harness.leader(1)
    fill(lead(harness, "t-0").log, [(1, 9)])
    fill(lead(harness, "u-0").log, [(1, 3)])
    harness.led(1, "t-0").log.leave_to_tier(6)
    harness.tier.add("t", 0, 0, 5, [(LeaderEpoch(1), 0)])
    return harness


def lead(harness: FollowerHarness, name: str, epoch: int = 1) -> LedPartition:
    led = harness.lead(1, name, epoch)
    led.log.epochs.clear()
    return led


def test_builds_are_counted() -> None:
    harness = make_harness()
    replica = harness.follow("t-0", 1, 1)
    harness.advance(50)
    assert replica.log.end == 9
    assert replica.traffic.build_remote_log_aux_state_requests == 1
    assert replica.traffic.build_remote_log_aux_state_errors == 0


def test_metadata_that_is_not_loaded_yet_is_no_error() -> None:
    harness = make_harness()
    harness.tier.is_ready = False
    replica = harness.follow("t-0", 1, 1)
    harness.advance(100)
    assert replica.traffic.build_remote_log_aux_state_requests > 1
    assert replica.traffic.build_remote_log_aux_state_errors == 0


def test_failing_store_is_an_error_and_retried() -> None:
    harness = make_harness()
    harness.tier.troubles = [RemoteLogUnavailable("unavailable")] * 3
    replica = harness.follow("t-0", 1, 1)
    harness.advance(200)
    assert replica.traffic.build_remote_log_aux_state_errors == 3
    assert replica.log.end == 9


def test_old_log_stays_until_the_state_is_loaded() -> None:
    harness = make_harness()
    fill(harness.replica("t-0").log, [(1, 2)])
    harness.tier.is_ready = False
    replica = harness.follow("t-0", 1, 1)
    harness.advance(1000)
    assert (replica.log.start, replica.log.end) == (0, 2)


def test_slow_store_does_not_block_other_replicas() -> None:
    """Kafka's follower is blocked (KAFKA-13560)."""
    harness = make_harness()
    harness.tier.takes_s = 3600
    slow, other = harness.follow("t-0", 1, 1), harness.follow("u-0", 1, 1)
    harness.advance(100)
    harness.write(1, "u-0", 2)
    harness.advance(100)
    assert (slow.log.end, other.log.end) == (0, 5)
    assert harness.phase("t-0") is FetchPhase.BUILDING


@pytest.mark.parametrize("is_tiering", [True, False])
def test_fetches_are_retried_without_remote_storage_and_the_log_stays(is_tiering: bool) -> None:
    harness = make_harness(is_tiering=is_tiering)
    fill(harness.replica("t-0").log, [(1, 2)])
    replica = harness.follow("t-0", 1, 1)
    harness.advance(100)
    assert (replica.log.end == 9) is is_tiering
    assert (harness.phase("t-0") is FetchPhase.DELAYED) is not is_tiering


def test_fenced_leader_epoch_ends_the_build_until_new_metadata() -> None:
    harness = make_harness()
    harness.follow("t-0", 1, 1)
    harness.advance(2.5)
    lead(harness, "t-0", 2)
    harness.advance(100)
    assert harness.phase("t-0") is FetchPhase.FAILED
    replica = harness.follow("t-0", 1, 2)
    fill(harness.led(1, "t-0").log, [(2, 1)])
    harness.advance(100)
    assert replica.log.start == 0


def test_lost_connection_is_reopened() -> None:
    harness = make_harness()
    replica = harness.follow("t-0", 1, 1)
    harness.advance(2.5)
    harness.move(1)
    harness.advance(100)
    assert replica.log.end == 9


def test_unreachable_leader_is_queried_later() -> None:
    harness = make_harness()
    replica = harness.follow("t-0", 1, 1)
    harness.advance(2.5)
    harness.transport.down.add(harness.leaders[1].endpoint)
    harness.advance(100)
    assert replica.traffic.build_remote_log_aux_state_errors == 0
    harness.transport.down.clear()
    harness.advance(2000)
    assert replica.log.end == 9


def test_building_replica_stays_with_its_fetcher() -> None:
    harness = make_harness()
    harness.replica("t-0").truncation_s = 0.1
    replica = harness.follow("t-0", 1, 1)
    harness.advance(10)
    harness.configure(ResourceType.BROKER, "", "num.replica.fetchers", "4")
    harness.advance(10)
    assert harness.phase("t-0") is FetchPhase.BUILDING
    harness.advance(200)
    assert replica.log.end == 9


def test_unfollowed_replica_is_unchanged() -> None:
    harness = make_harness()
    harness.tier.takes_s = 0.05
    replica = harness.follow("t-0", 1, 1)
    harness.advance(10)
    harness.unfollow("t-0")
    harness.advance(200)
    assert (replica.log.start, replica.log.end) == (0, 0)


def test_failing_log_directory_ends_the_build() -> None:
    harness = make_harness()
    replica = harness.follow("t-0", 1, 1)
    replica.fault = storage_error()
    harness.advance(100)
    assert harness.phase("t-0") is FetchPhase.FAILED


def test_many_replicas_share_queries() -> None:
    lines: list[str] = []
    harness = FollowerHarness(lines.append)
    harness.leader(1)
    for index in range(5):
        fill(lead(harness, f"t-{index}").log, [(1, 9)])
        harness.led(1, f"t-{index}").log.leave_to_tier(6)
        harness.tier.add("t", index, 0, 5, [(LeaderEpoch(1), 0)])
        harness.follow(f"t-{index}", 1, 1)
    harness.advance(50)
    assert {replica.log.end for replica in harness.replicas.values()} == {9}
    assert [line for line in lines if "ListOffsets" in line or "OffsetForLeaderEpoch" in line] == [
        "-> 1 ListOffsets EARLIEST_LOCAL: t-0 t-1 t-2 t-3 t-4",
        "-> 1 OffsetForLeaderEpoch: epoch 0 of t-0 0 of t-1 0 of t-2 0 of t-3 0 of t-4",
    ]


def test_unexpected_plugin_error_is_raised_and_retried() -> None:
    harness = make_harness()
    harness.tier.troubles = [ZeroDivisionError()]
    replica = harness.follow("t-0", 1, 1)
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        harness.advance(20)
    harness.loop.failures.clear()
    harness.advance(100)
    assert replica.log.end == 9


def test_out_of_range_replica_restarts_at_the_log_start_first() -> None:
    """Retention has passed the replica: it restarts at the log start, then builds auxiliary state (KIP-405)."""
    harness = make_harness()
    log = harness.led(1, "t-0").log
    log.start = 3
    log.epochs = [(1, 3)]
    replica = harness.follow("t-0", 1, 1)
    harness.advance(50)
    assert (replica.log.start, replica.log.local_start, replica.log.end) == (3, 6, 9)
    assert replica.log.epochs == [(1, 3)]
