"""Lags of groups over time."""

from broker.console.lag_history import GROUPS_MAX, PARTITIONS_MAX, SAMPLES_MAX, SHOWN_MAX, GroupLags, LagHistory


def test_samples_are_a_second_apart() -> None:
    lags = GroupLags()
    for now_ms in (0, 500, 1_000, 1_999, 2_000):
        lags.add(now_ms, {("t", 0): now_ms}, now_ms)
    assert lags.samples() == [{"time_ms": each, "lag": each} for each in (0, 1_000, 2_000)]
    assert lags.of(("t", 0)) == [0, 1_000, 2_000]


def test_partition_that_comes_later_is_unknown_before() -> None:
    lags = GroupLags()
    lags.add(0, {("t", 0): 1}, 1)
    lags.add(1_000, {("t", 0): None, ("t", 1): 5}, 6)
    assert lags.of(("t", 0)) == [1, None]
    assert lags.of(("t", 1)) == [None, 5]
    lags.add(2_000, {("t", 1): 4}, 4)
    assert lags.of(("t", 0)) == []


def test_samples_and_partitions_are_bounded() -> None:
    lags = GroupLags()
    partitions = {("t", index): index for index in range(PARTITIONS_MAX + 5)}
    for number in range(SAMPLES_MAX + 10):
        lags.add(number * 1_000, partitions, number)
    assert [each["lag"] for each in lags.samples()] == list(range(10, SAMPLES_MAX + 10))
    assert lags.of(("t", 3)) == [3] * SHOWN_MAX
    assert lags.of(("t", PARTITIONS_MAX)) == []


def test_oldest_group_makes_room() -> None:
    history = LagHistory()
    history.group("first").add(0, {}, 1)
    for number in range(GROUPS_MAX - 1):
        history.group(number)
    assert history.group("first").samples()
    for number in range(GROUPS_MAX):
        history.group(number)
    assert not history.group("first").samples()
