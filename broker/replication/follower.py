"""A partition as a follower keeps it: whom to follow, in which reign, and what a leader's marks mean for its own."""

from dataclasses import dataclass


@dataclass(slots=True)
class FollowerRole:
    """The follower's state for one reign. `leader_id` is None while the partition has no leader."""

    broker_id: int
    leader_id: int | None
    epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]


def follower_high_watermark(leader_high_watermark: int, log_start_offset: int, log_end_offset: int) -> int:
    """The leader's high watermark as far as the follower's own log reaches; it may lie below an earlier one."""
    return max(log_start_offset, min(leader_high_watermark, log_end_offset))
