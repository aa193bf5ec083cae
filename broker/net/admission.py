"""Counts of open connections by address: `max.connections` and `max.connections.per.ip`."""

from collections.abc import Mapping


class ConnectionCounts:
    """The open connections of a server, in total and by address."""

    __slots__ = ("_by_host", "_max_per_host", "_overrides", "_total_max", "total")

    def __init__(self, total_max: int, max_per_host: int, overrides: Mapping[str, int]) -> None:
        self._by_host: dict[str, int] = {}
        self.total = 0
        self.set_limits(total_max, max_per_host, overrides)

    def set_limits(self, total_max: int, max_per_host: int, overrides: Mapping[str, int]) -> None:
        """Change the limits. Open connections stay open. `overrides` are limits by address."""
        self._total_max = total_max
        self._max_per_host = max_per_host
        self._overrides = overrides

    def is_full(self) -> bool:
        """Whether the server has reached `max.connections`."""
        return self.total >= self._total_max

    def admits(self, host: str) -> bool:
        """Whether `host` may open another connection."""
        return self._by_host.get(host, 0) < self._overrides.get(host, self._max_per_host)

    def opened(self, host: str) -> None:
        """Count a connection from `host`."""
        self.total += 1
        self._by_host[host] = self._by_host.get(host, 0) + 1

    def closed(self, host: str) -> None:
        """Stop counting a connection from `host`."""
        self.total -= 1
        left = self._by_host[host] - 1
        if left:
            self._by_host[host] = left
        else:
            del self._by_host[host]
