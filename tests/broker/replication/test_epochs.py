"""Leader epochs: fencing and divergence, KIP-279 and KIP-320 (`broker.replication.epochs`)."""

import pytest

from broker.replication.epochs import EpochEnd, TruncationPoint, check_leader_epoch, has_diverged, truncation_point
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch

UNKNOWN = EpochEnd(LeaderEpoch(-1), -1)


@pytest.mark.parametrize(
    ("requested", "error"),
    [
        (-1, ErrorCode.NONE),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.NONE),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_requests_are_fenced_by_epoch(requested: int, error: ErrorCode) -> None:
    assert check_leader_epoch(LeaderEpoch(requested), LeaderEpoch(5)) == error


@pytest.mark.parametrize(
    ("leader_end", "diverged"),
    [
        (EpochEnd(LeaderEpoch(3), 100), False),
        (EpochEnd(LeaderEpoch(3), 50), False),
        (EpochEnd(LeaderEpoch(3), 49), True),  # the leader's epoch 3 ended before the reader's position
        (EpochEnd(LeaderEpoch(2), 100), True),  # the leader never had epoch 3
    ],
)
def test_reader_diverges_where_the_leader_lacks_its_epoch_or_ended_it_earlier(
    leader_end: EpochEnd, diverged: bool
) -> None:
    assert has_diverged(LeaderEpoch(3), 50, leader_end) is diverged


@pytest.mark.parametrize(
    ("leader_end", "own_end", "expected"),
    [
        (UNKNOWN, UNKNOWN, TruncationPoint(20, is_final=True)),  # fallback: the high watermark
        (
            EpochEnd(LeaderEpoch(-1), 40),
            EpochEnd(LeaderEpoch(3), 50),
            TruncationPoint(40, is_final=True),
        ),  # an old leader reports no epoch
        (EpochEnd(LeaderEpoch(3), 40), UNKNOWN, TruncationPoint(40, is_final=True)),
        (EpochEnd(LeaderEpoch(3), 40), EpochEnd(LeaderEpoch(3), 50), TruncationPoint(40, is_final=True)),
        (EpochEnd(LeaderEpoch(3), 60), EpochEnd(LeaderEpoch(3), 50), TruncationPoint(50, is_final=True)),
        (
            EpochEnd(LeaderEpoch(3), 200),
            EpochEnd(LeaderEpoch(3), 150),
            TruncationPoint(100, is_final=True),
        ),  # limited to the follower's own log
        (
            EpochEnd(LeaderEpoch(3), 60),
            EpochEnd(LeaderEpoch(2), 30),
            TruncationPoint(30, is_final=False),
        ),  # the next query is for epoch 2
    ],
)
def test_follower_truncates_to_the_last_common_offset(
    leader_end: EpochEnd, own_end: EpochEnd, expected: TruncationPoint
) -> None:
    assert truncation_point(leader_end, own_end, log_end_offset=100, initial_offset=20) == expected
