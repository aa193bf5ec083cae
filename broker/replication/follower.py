"""The follower's state of a partition, and its high watermark."""

from protocol.ids import BrokerId, LeaderEpoch
from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(slots=True)
class FollowerRole:
    """The follower's state for one leader epoch. `leader_id` is None while the partition has no leader."""

    broker_id: BrokerId
    leader_id: BrokerId | None
    epoch: LeaderEpoch
    partition_epoch: int
    replicas: tuple[int, ...]
