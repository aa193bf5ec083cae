"""The rate limit for reads from remote storage (KIP-956), as a queue: a reservation returns the time to wait.

Bytes are reserved before they are read, so that many waiting reads do not start together, and given back if the read
brought fewer. Unused bandwidth accumulates for as long as the windows reach over which Apache Kafka takes its average.
"""

from broker.clock import Clock
from broker.metrics.quota_use import QuotaUse

UNLIMITED = 2**63 - 1


class RemoteReadQuota:
    """The quota of one broker.

    `window_ms` is the time for which unused bandwidth accumulates (`remote.log.manager.fetch.quota.window.num` times
    `….size.seconds`).
    """

    def __init__(self, clock: Clock, window_ms: int = 11_000) -> None:
        self._clock = clock
        self._window_ms = window_ms
        self._reserved_until_ms = clock.monotonic_ms() - window_ms
        self.use = QuotaUse(clock, window_ms)

    def reserve(self, size_bytes: int, bytes_per_second: int) -> float:
        """Reserve bytes at the end of the queue; return the milliseconds to wait before the read."""
        self.use.used(size_bytes)
        if bytes_per_second >= UNLIMITED:
            return 0.0
        now_ms = self._clock.monotonic_ms()
        begins_ms = max(self._reserved_until_ms, now_ms - self._window_ms)
        self._reserved_until_ms = begins_ms + size_bytes * 1000 / bytes_per_second
        wait_ms = max(0.0, begins_ms - now_ms)
        if wait_ms:
            self.use.waited(wait_ms)
        return wait_ms

    def give_back(self, size_bytes: int, bytes_per_second: int) -> None:
        """Return reserved bytes that were not read."""
        self.use.used(-size_bytes)
        if bytes_per_second < UNLIMITED:
            self._reserved_until_ms -= size_bytes * 1000 / bytes_per_second
