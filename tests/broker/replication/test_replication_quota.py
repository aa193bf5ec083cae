"""The replication quota (KIP-73): the replicas that count, and when lagging ones must wait."""

import pytest

from broker.replication.replication_quota import UNLIMITED, ReplicationQuota, listed_partitions


def quota(rate: int) -> ReplicationQuota:
    made = ReplicationQuota(window_count=11, window_ms=1000)
    made.rate = rate
    return made


def test_quota_without_rate_is_never_exceeded() -> None:
    unlimited = ReplicationQuota()
    unlimited.record(10**15, 0)
    assert unlimited.rate == UNLIMITED
    assert not unlimited.is_exceeded(0)


def test_first_sample_counts_as_a_whole_window() -> None:
    limited = quota(1000)
    limited.record(1000, 5000)
    assert limited.observed(5100) == 1000
    assert not limited.is_exceeded(5100)
    limited.record(1, 5200)
    assert limited.is_exceeded(5200)


def test_quota_recovers_with_time() -> None:
    limited = quota(1000)
    limited.record(3000, 0)
    assert limited.is_exceeded(2900)
    assert not limited.is_exceeded(3000)


def test_samples_older_than_the_windows_do_not_count() -> None:
    limited = quota(1000)
    limited.record(50_000, 0)
    assert limited.is_exceeded(10_999)
    assert limited.observed(11_000) == 0
    limited.record(500, 11_500)
    assert limited.observed(11_500) == 500


def test_traffic_of_one_second_is_one_sample() -> None:
    limited = quota(1000)
    for moment in range(0, 10_000, 10):
        limited.record(10, moment)
    assert limited.observed(10_000) == pytest.approx(1000)


def test_list_has_some_partitions_or_all() -> None:
    some = ReplicationQuota()
    assert some.list_topic("t", [1, 2])
    assert not some.list_topic("t", {2, 1})
    assert some.is_listed("t", 1)
    assert not some.is_listed("t", 3)
    assert not some.is_listed("u", 1)
    assert some.list_topic("t", None)
    assert some.is_listed("t", 3)
    assert some.list_topic("t", [])
    assert not some.is_listed("t", 1)
    assert not some.list_topic("t", [])


@pytest.mark.parametrize(
    ("text", "found"),
    [("", []), ("*", None), (" * ", None), ("0:9,1:8,2:9", [0, 2]), ("0:9, 3:9", [0, 3]), ("x:9,:,4", [])],
)
def test_throttled_replicas_list_is_parsed(text: str, found: list[int] | None) -> None:
    assert listed_partitions(text, 9) == found
