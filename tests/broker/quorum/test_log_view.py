"""Divergence and validation of logs (KIP-595, KIP-630)."""

import pytest

from broker.quorum.log_view import VALID, Diverging, LogView, NeedsSnapshot, Validation
from broker.quorum.settings import StoredSnapshot
from protocol.ids import LeaderEpoch, Offset
from tests.support.quorum_values import log_position, make_epoch_entry, make_recovered, make_snapshot_id


def log(
    end: int, epochs: dict[int, int], *, start: int = 0, snapshots: tuple[tuple[int, int], ...] = (), size: int = 0
) -> LogView:
    """Build a view. `epochs` maps epoch to start offset; `snapshots` are (end offset, epoch)."""
    stored = tuple(StoredSnapshot(make_snapshot_id(*each), 100, 0) for each in snapshots)
    starts = tuple(make_epoch_entry(epoch, offset) for epoch, offset in epochs.items())
    return LogView(make_recovered(None, start, end, starts, stored, (), size))


LEADER = {1: 0, 4: 20}
"""Build a log to offset 30: KIP-595's example of divergence."""


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, (0, 0)), (1, (1, 20)), (2, (1, 20)), (3, (1, 20)), (4, (4, 30)), (5, (4, 30))],
)
def test_epoch_ends_at_the_start_of_the_next(epoch: int, expected: tuple[int, int]) -> None:
    assert log(30, LEADER).end_offset_for_epoch(LeaderEpoch(epoch)) == log_position(*expected)


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (0, 0, VALID),
        (30, 4, VALID),
        (20, 1, VALID),
        (12, 1, VALID),
        (25, 3, Diverging(log_position(1, 20))),
        (21, 1, Diverging(log_position(1, 20))),
        (31, 4, Diverging(log_position(4, 30))),
        (30, 9, Diverging(log_position(4, 30))),
    ],
)
def test_position_on_the_leaders_log_is_valid(offset: int, epoch: int, expected: Validation) -> None:
    assert log(30, LEADER).validate(Offset(offset), LeaderEpoch(epoch)) == expected


def test_diverging_follower_gets_the_end_of_the_largest_common_epoch() -> None:
    """The follower has epochs 2 and 3, which the leader lacks; its epoch 1 is shorter than the leader's."""
    leader, follower = log(30, LEADER), log(25, {1: 0, 2: 12, 3: 18})
    answer = leader.validate(follower.end, follower.last_epoch)
    assert isinstance(answer, Diverging)
    assert follower.truncation_offset(answer.position) == 12
    follower.truncate_to(Offset(12))
    assert follower.position == log_position(1, 12)
    assert leader.validate(follower.end, follower.last_epoch) == VALID


@pytest.mark.parametrize(
    ("diverging", "expected"),
    [((0, 9), 9), ((0, 99), 25), ((1, 5), 5), ((2, 99), 18), ((9, 99), 25), ((3, 20), 20)],
)
def test_truncation_offset_is_the_lesser_epoch_end(diverging: tuple[int, int], expected: int) -> None:
    assert log(25, {1: 0, 2: 12, 3: 18}).truncation_offset(log_position(*diverging)) == expected


def test_truncation_removes_an_epoch_without_records() -> None:
    view = log(10, {1: 0, 2: 10})
    view.truncate_to(Offset(10))
    assert view.position == log_position(1, 10)


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (0, 0, NeedsSnapshot(make_snapshot_id(120, 6))),
        (99, 4, NeedsSnapshot(make_snapshot_id(120, 6))),
        (100, 4, VALID),
        (100, 3, NeedsSnapshot(make_snapshot_id(120, 6))),
        (110, 3, NeedsSnapshot(make_snapshot_id(120, 6))),
        (110, 5, VALID),
        (130, 6, VALID),
        (110, 4, Diverging(log_position(4, 100))),
        (99, 6, NeedsSnapshot(make_snapshot_id(120, 6))),
        (99, 7, Diverging(log_position(4, 100))),  # uncommitted records of a later epoch than any snapshot
        (100, 7, Diverging(log_position(4, 100))),
    ],
)
def test_offset_below_the_log_start_needs_a_snapshot(offset: int, epoch: int, expected: Validation) -> None:
    view = log(130, {5: 100, 6: 115}, start=100, snapshots=((100, 4), (120, 6)))
    assert view.validate(Offset(offset), LeaderEpoch(epoch)) == expected


def test_epoch_before_the_log_ends_at_the_oldest_snapshot() -> None:
    view = log(130, {5: 100, 6: 115}, start=100, snapshots=((100, 4), (120, 6)))
    assert [view.end_offset_for_epoch(LeaderEpoch(epoch)) for epoch in (3, 4, 5)] == [(4, 100), (4, 100), (5, 115)]


def test_empty_follower_needs_a_snapshot_even_if_the_log_starts_at_0() -> None:
    assert log(30, LEADER, snapshots=((25, 4),)).validate(Offset(0), LeaderEpoch(0)) == NeedsSnapshot(
        make_snapshot_id(25, 4)
    )


@pytest.mark.parametrize(
    ("snapshot_id", "expected"),
    [
        ((31, 4), True),  # beyond the end
        ((31, 5), True),
        ((30, 4), False),
        ((25, 4), False),
        ((25, 3), True),  # different records, although of an earlier epoch than the last record here
        ((25, 5), True),
        ((10, 1), False),  # the newest snapshot of this log
        ((9, 9), False),
        ((12, 0), False),
        ((12, -1), False),
    ],
)
def test_snapshot_is_missing_if_the_log_lacks_its_records(snapshot_id: tuple[int, int], expected: bool) -> None:
    assert log(30, LEADER, snapshots=((10, 1),)).lacks(make_snapshot_id(*snapshot_id)) is expected


def test_log_that_starts_at_a_snapshot_has_its_epoch() -> None:
    view = log(5, {1: 0})
    view.start_at(StoredSnapshot(make_snapshot_id(1000, 5), 100, 0))
    assert (view.start, view.end, view.position) == (1000, 1000, log_position(5, 1000))
    assert view.epoch_before(Offset(1000)) == 5


def test_trim_keeps_the_epoch_at_the_new_start() -> None:
    view = log(30, {1: 0, 4: 20}, snapshots=((10, 1), (25, 4)), size=3000)
    view.trim(make_snapshot_id(25, 4))
    assert (view.start, view.bytes) == (25, 500)
    assert view.end_offset_for_epoch(LeaderEpoch(4)) == log_position(4, 30)
    assert view.oldest_snapshot == view.newest_snapshot == make_snapshot_id(25, 4)
    assert view.validate(Offset(25), LeaderEpoch(4)) == VALID
    assert view.validate(Offset(24), LeaderEpoch(4)) == NeedsSnapshot(make_snapshot_id(25, 4))


@pytest.mark.parametrize(("offset", "expected"), [(0, None), (1, 1), (20, 1), (21, 4), (30, 4), (31, None)])
def test_epoch_before_an_offset(offset: int, expected: int | None) -> None:
    assert log(30, LEADER).epoch_before(Offset(offset)) == expected


def test_snapshots_are_ordered_by_id() -> None:
    view = log(30, LEADER)
    assert view.add_snapshot(StoredSnapshot(make_snapshot_id(25, 4), 1, 0))
    assert view.add_snapshot(StoredSnapshot(make_snapshot_id(15, 1), 1, 0))
    assert not view.add_snapshot(StoredSnapshot(make_snapshot_id(15, 1), 1, 0))
    assert (view.oldest_snapshot, view.newest_snapshot) == (make_snapshot_id(15, 1), make_snapshot_id(25, 4))


def test_append_adds_a_new_epoch() -> None:
    view = log(0, {})
    view.append(Offset(3), LeaderEpoch(1), 50)
    view.append(Offset(5), LeaderEpoch(1), 50)
    view.append(Offset(6), LeaderEpoch(4), 20)
    assert view.position == log_position(4, 6)
    assert view.end_offset_for_epoch(LeaderEpoch(1)) == log_position(1, 5)
    assert view.bytes == 120
