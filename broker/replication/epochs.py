"""Leader epochs: fencing of requests, and divergence of logs (KIP-101, KIP-279, KIP-320, KIP-595).

An epoch names the term of one leader. A request may name its sender's leader epoch, and a log remembers the offset at
which each epoch began; together they decide which records a reader may trust.
"""

from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.lazy_dataclass import lazy_dataclass

UNKNOWN_EPOCH = LeaderEpoch(-1)
UNKNOWN_OFFSET = -1


@lazy_dataclass(frozen=True, slots=True)
class EpochEnd:
    """The end of an epoch in a log: the greatest epoch at or below the requested one, and its end offset."""

    epoch: LeaderEpoch
    end_offset: int

    @property
    def is_known(self) -> bool:
        return self.epoch != UNKNOWN_EPOCH and self.end_offset != UNKNOWN_OFFSET


def check_leader_epoch(requested: LeaderEpoch, current: LeaderEpoch) -> ErrorCode:
    """Compare a request's leader epoch with the current one: fenced if older, unknown if newer.

    -1 requests no check (old clients).
    """
    if requested in (UNKNOWN_EPOCH, current):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if requested < current else ErrorCode.UNKNOWN_LEADER_EPOCH


def has_diverged(last_fetched_epoch: LeaderEpoch, fetch_offset: int, leader_end: EpochEnd) -> bool:
    """Whether a reader, whose last record has `last_fetched_epoch`, has records that the leader's log lacks.

    `leader_end` is the leader's end for that epoch. The logs diverge if the leader never had the epoch, or ended it
    before the reader's position.
    """
    return leader_end.epoch < last_fetched_epoch or leader_end.end_offset < fetch_offset


@lazy_dataclass(frozen=True, slots=True)
class TruncationPoint:
    """The offset at which a follower truncates; if not `is_final`, the leader must be asked again, with that epoch."""

    offset: int
    is_final: bool


def truncation_point(
    leader_end: EpochEnd, own_end: EpochEnd, log_end_offset: int, initial_offset: int
) -> TruncationPoint:
    """Decide where a follower truncates, by its leader's end for an epoch (KIP-279).

    `own_end` is the follower's own end for `leader_end.epoch`. `initial_offset` is its high watermark, the fallback
    when the leader knows no end.
    """
    if leader_end.end_offset == UNKNOWN_OFFSET:
        return TruncationPoint(min(initial_offset, log_end_offset), is_final=True)
    if leader_end.epoch == UNKNOWN_EPOCH or not own_end.is_known:
        return TruncationPoint(min(leader_end.end_offset, log_end_offset), is_final=True)
    if own_end.epoch == leader_end.epoch:
        return TruncationPoint(min(own_end.end_offset, leader_end.end_offset, log_end_offset), is_final=True)
    return TruncationPoint(min(own_end.end_offset, log_end_offset), is_final=False)
