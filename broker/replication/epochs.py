"""Leader epochs: which requests are fenced, and where two logs part (KIP-101, KIP-279, KIP-320, KIP-595's truncation).

An epoch names one reign of one leader. A request may say which epoch its sender believes in; a log remembers at which
offset each epoch began. Both facts together say what a reader may trust.
"""

from dataclasses import dataclass

from protocol.errors import ErrorCode

UNKNOWN_EPOCH = -1
UNKNOWN_OFFSET = -1


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Where the leader's log ends for an epoch: the largest epoch it knows at or below the asked one, and its end."""

    epoch: int
    end_offset: int

    @property
    def is_known(self) -> bool:
        return self.epoch != UNKNOWN_EPOCH and self.end_offset != UNKNOWN_OFFSET


def check_leader_epoch(requested: int, current: int) -> ErrorCode:
    """Compare the epoch of a request with ours: older is fenced, newer is one that we have yet to hear of.

    -1 asks for no check (old clients).
    """
    if requested in (UNKNOWN_EPOCH, current):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if requested < current else ErrorCode.UNKNOWN_LEADER_EPOCH


def has_diverged(last_fetched_epoch: int, fetch_offset: int, leader_end: EpochEnd) -> bool:
    """Whether a reader whose last record has `last_fetched_epoch` holds something that this leader's log does not.

    `leader_end` is the leader's end for that epoch. The log of the reader parts from ours if we never had that epoch,
    or ended it before the reader's position.
    """
    return leader_end.epoch < last_fetched_epoch or leader_end.end_offset < fetch_offset


@dataclass(frozen=True, slots=True)
class TruncationPoint:
    """Where a follower cuts its log; `is_final` false means: cut, then ask the leader again with the older epoch."""

    offset: int
    is_final: bool


def truncation_point(
    leader_end: EpochEnd, own_end: EpochEnd, log_end_offset: int, initial_offset: int
) -> TruncationPoint:
    """Decide how much a follower must forget after its leader told its end for an epoch (KIP-279).

    `own_end` is the follower's own end for `leader_end.epoch`; `initial_offset` is its high watermark, all that is left
    to go by when the leader knows no end.
    """
    if leader_end.end_offset == UNKNOWN_OFFSET:
        return TruncationPoint(min(initial_offset, log_end_offset), is_final=True)
    if leader_end.epoch == UNKNOWN_EPOCH or not own_end.is_known:
        return TruncationPoint(min(leader_end.end_offset, log_end_offset), is_final=True)
    if own_end.epoch == leader_end.epoch:
        return TruncationPoint(min(own_end.end_offset, leader_end.end_offset, log_end_offset), is_final=True)
    return TruncationPoint(min(own_end.end_offset, log_end_offset), is_final=False)
