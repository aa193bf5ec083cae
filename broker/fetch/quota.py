"""The leader replication quota as fetches use it (KIP-73)."""

from typing import Protocol


class LeaderQuota(Protocol):
    """The limit on replication traffic that this broker sends (`leader.replication.throttled.rate`).

    Times are in milliseconds of a monotonic clock.
    """

    def is_listed(self, topic: str, partition: int, /) -> bool:
        """Whether the quota counts traffic of this replica (`leader.replication.throttled.replicas`)."""

    def is_exceeded(self, now_ms: float, /) -> bool: ...

    def record(self, size_bytes: int, now_ms: float, /) -> None:
        """Count records of a listed replica that were sent to a follower."""
