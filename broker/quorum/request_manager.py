"""Requests under way: one at a time to each destination, and a pause after one that failed.

Destinations are node ids, and negative numbers for bootstrap servers. What is asked is not known here.
"""

from math import inf
from typing import Final, NamedTuple

from broker.quorum.identity import Instant, SocketAddress
from broker.quorum.messages import Request
from broker.quorum.ready import SendRequest

_MOST_DOUBLINGS: Final = 3


class InFlightRequest(NamedTuple):
    """A request that is under way, or was until now."""

    to_id: int
    to: SocketAddress
    request: Request


class RequestManager:
    """A destination that fails again and again is left alone for up to eight times the back-off."""

    def __init__(self, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._timeout_ms = request_timeout_ms
        self._backoff_ms = retry_backoff_ms
        self._serial = 0
        self._flights: dict[int, InFlightRequest] = {}
        self._busy: dict[int, int] = {}
        self._retry_at: dict[int, float] = {}
        self._failures: dict[int, int] = {}

    def is_ready(self, to_id: int, now: Instant) -> bool:
        """Whether something may be sent there."""
        return to_id not in self._busy and not self.is_backing_off(to_id, now)

    def is_backing_off(self, to_id: int, now: Instant) -> bool:
        """Whether the last request there failed, just now."""
        return now.monotonic_ms < self._retry_at.get(to_id, now.monotonic_ms)

    def is_failing(self, to_id: int) -> bool:
        """Whether a request there failed, and none succeeded since."""
        return to_id in self._failures

    def ready_at(self, to_id: int) -> float:
        """From when on something may be sent there; infinite while a request is under way."""
        return inf if to_id in self._busy else self._retry_at.get(to_id, 0.0)

    def send(self, to_id: int, to: SocketAddress, request: Request) -> SendRequest:
        """Takes the destination for a request until its outcome comes."""
        self._serial += 1
        self._flights[self._serial] = InFlightRequest(to_id, to, request)
        self._busy[to_id] = self._serial
        return SendRequest(self._serial, to_id, to, request, self._timeout_ms)

    def complete(self, serial: int) -> InFlightRequest | None:
        """The request whose outcome came; None if nobody waits for it any more."""
        flight = self._flights.pop(serial, None)
        if flight is not None:
            del self._busy[flight.to_id]
            self._retry_at.pop(flight.to_id, None)
        return flight

    def failed(self, to_id: int, now: Instant) -> None:
        """Nothing came of it: pause, longer each time until something does."""
        failures = self._failures.get(to_id, 0)
        self._failures[to_id] = failures + 1
        self._retry_at[to_id] = now.monotonic_ms + (self._backoff_ms << min(failures, _MOST_DOUBLINGS))

    def succeeded(self, to_id: int) -> None:
        self._failures.pop(to_id, None)

    def moved(self, to_id: int) -> None:
        """It is somewhere else than it was asked: what comes from there does not matter any more."""
        serial = self._busy.pop(to_id, None)
        if serial is not None:
            del self._flights[serial]

    def forget(self) -> None:
        """A new role begins: outcomes of older requests do not matter, and everybody may be asked at once."""
        self._flights.clear()
        self._busy.clear()
        self._retry_at.clear()
        self._failures.clear()

    @property
    def is_any_busy(self) -> bool:
        return bool(self._busy)

    def next_retry(self, now: Instant) -> float | None:
        """When the next pause ends."""
        over = [to_id for to_id, at in self._retry_at.items() if at <= now.monotonic_ms]
        for to_id in over:
            del self._retry_at[to_id]
        return min(self._retry_at.values(), default=None)
