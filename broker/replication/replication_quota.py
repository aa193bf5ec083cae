"""A quota of replication traffic (KIP-73): the listed replicas, and their recent rate.

Kafka has two quotas per broker, for bytes sent as leader and for bytes fetched as follower. The traffic of every listed
replica counts, in sync or not. Only replicas that are out of sync are held back, so a throttle never removes a replica
from its ISR.
"""

from collections import deque
from collections.abc import Collection
from typing import Final

UNLIMITED: Final = 2**63 - 1
ALL: Final = "*"


class ReplicationQuota:
    """`rate` is in bytes per second, averaged over `window_count` samples of `window_ms` each
    (`replication.quota.window.num`, `….size.seconds`).

    The oldest sample counts in full until it expires, as in Kafka; the first second of traffic is thus not a burst.
    """

    __slots__ = ("_listed", "_samples", "_total", "_window_count", "_window_ms", "rate")

    def __init__(self, *, window_count: int = 11, window_ms: int = 1000) -> None:
        self.rate = UNLIMITED
        self._window_count = window_count
        self._window_ms = window_ms
        self._listed: dict[str, frozenset[int] | None] = {}  # None: all partitions
        self._samples: deque[list[float]] = deque()  # (began at, bytes), the oldest first
        self._total = 0.0

    # ---- which replicas

    def list_topic(self, topic: str, partitions: Collection[int] | None) -> bool:
        """Throttle these partitions of a topic, None for all partitions; return whether the list has changed."""
        listed = None if partitions is None else frozenset(partitions)
        before: object = self._listed.get(topic, frozenset())
        if listed is None or listed:
            self._listed[topic] = listed
        else:
            self._listed.pop(topic, None)
        return before != listed

    def is_listed(self, topic: str, partition: int) -> bool:
        """Whether a replica's traffic counts."""
        if not self._listed or topic not in self._listed:
            return False
        partitions = self._listed[topic]
        return partitions is None or partition in partitions

    # ---- how much

    def record(self, size_bytes: int, now_ms: float) -> None:
        """Count the traffic of a listed replica."""
        self._expire(now_ms)
        if not self._samples or now_ms - self._samples[-1][0] >= self._window_ms:
            self._samples.append([now_ms, 0.0])
        self._samples[-1][1] += size_bytes
        self._total += size_bytes

    def observed(self, now_ms: float) -> float:
        """Return the recent bytes per second."""
        self._expire(now_ms)
        if not self._samples:
            return 0.0
        elapsed_ms = max(now_ms - self._samples[0][0], self._window_ms)
        return self._total * 1000 / elapsed_ms

    def is_exceeded(self, now_ms: float) -> bool:
        """Whether replicas that are out of sync must wait."""
        return self.rate != UNLIMITED and self.observed(now_ms) > self.rate

    def _expire(self, now_ms: float) -> None:
        oldest = now_ms - self._window_count * self._window_ms
        while self._samples and self._samples[0][0] <= oldest:
            self._total -= self._samples.popleft()[1]


def listed_partitions(text: str, broker_id: int) -> Collection[int] | None:
    """Return the partitions that `….replication.throttled.replicas` lists for a broker; None for all (`*`).

    Invalid values were refused when they were set; here they list nothing.
    """
    if text.strip() == ALL:
        return None
    found = []
    for item in text.split(","):
        partition, _, broker = item.strip().partition(":")
        if partition.isdecimal() and broker == str(broker_id):
            found.append(int(partition))
    return found
