"""The follower's state of a partition, and its high watermark."""

from dataclasses import dataclass


@dataclass(slots=True)
class FollowerRole:
    """The follower's state for one leader epoch. `leader_id` is None while the partition has no leader."""

    broker_id: int
    leader_id: int | None
    epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]


def follower_high_watermark(leader_high_watermark: int, log_start_offset: int, log_end_offset: int) -> int:
    """Return the leader's high watermark, limited to the follower's own log; it may be below an earlier one."""
    return max(log_start_offset, min(leader_high_watermark, log_end_offset))
