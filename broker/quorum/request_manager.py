"""Requests in flight: one at a time per destination, and a back-off after a failure.

Destinations are node ids, and negative numbers for bootstrap servers. The content of requests does not matter here.
"""

from math import inf
from typing import Final, NamedTuple

from broker.quorum.identity import Instant, SocketAddress
from broker.quorum.messages import Request
from broker.quorum.ready import SendRequest
from protocol.ids import BrokerId

_MAX_BACKOFF_DOUBLINGS: Final = 3


class InFlightRequest(NamedTuple):
    """A request that was sent and whose outcome has not been processed."""

    to_id: BrokerId
    to: SocketAddress
    request: Request


class RequestManager:
    """In-flight requests and back-offs by destination. Repeated failures double the back-off, up to eight times."""

    def __init__(self, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._timeout_ms = request_timeout_ms
        self._backoff_ms = retry_backoff_ms
        self._serial = 0
        self._in_flight: dict[int, InFlightRequest] = {}
        self._busy: dict[BrokerId, int] = {}
        self._retry_at: dict[BrokerId, float] = {}
        self._failures: dict[BrokerId, int] = {}

    def is_ready(self, to_id: BrokerId, now: Instant) -> bool:
        """Whether a request may be sent to the destination now."""
        return to_id not in self._busy and not self.is_backing_off(to_id, now)

    def is_backing_off(self, to_id: BrokerId, now: Instant) -> bool:
        """Whether the last request to the destination failed and its back-off has not ended."""
        return now.monotonic_ms < self._retry_at.get(to_id, now.monotonic_ms)

    def is_failing(self, to_id: BrokerId) -> bool:
        """Whether a request to the destination failed and none has succeeded since."""
        return to_id in self._failures

    def ready_at(self, to_id: BrokerId) -> float:
        """The monotonic time from which a request may be sent; infinite while a request is in flight."""
        return inf if to_id in self._busy else self._retry_at.get(to_id, 0.0)

    def send(self, to_id: BrokerId, to: SocketAddress, request: Request) -> SendRequest:
        """Register a request and return it for sending. The destination is busy until the outcome arrives."""
        self._serial += 1
        self._in_flight[self._serial] = InFlightRequest(to_id, to, request)
        self._busy[to_id] = self._serial
        return SendRequest(self._serial, to_id, to, request, self._timeout_ms)

    def complete(self, serial: int) -> InFlightRequest | None:
        """Return the request whose outcome has arrived; None if the outcome is no longer wanted."""
        in_flight = self._in_flight.pop(serial, None)
        if in_flight is not None:
            del self._busy[in_flight.to_id]
            self._retry_at.pop(in_flight.to_id, None)
        return in_flight

    def failed(self, to_id: BrokerId, now: Instant) -> None:
        """Start a back-off, which doubles with each further failure."""
        failures = self._failures.get(to_id, 0)
        self._failures[to_id] = failures + 1
        self._retry_at[to_id] = now.monotonic_ms + (self._backoff_ms << min(failures, _MAX_BACKOFF_DOUBLINGS))

    def succeeded(self, to_id: BrokerId) -> None:
        """Clear the failure count."""
        self._failures.pop(to_id, None)

    def on_address_changed(self, to_id: BrokerId) -> None:
        """Drop the request in flight to the destination's former address; its outcome will be ignored."""
        serial = self._busy.pop(to_id, None)
        if serial is not None:
            del self._in_flight[serial]

    def reset(self) -> None:
        """Drop all state on a role change: outcomes of older requests are ignored, every destination is ready."""
        self._in_flight.clear()
        self._busy.clear()
        self._retry_at.clear()
        self._failures.clear()

    @property
    def has_any_in_flight(self) -> bool:
        return bool(self._busy)

    def next_retry(self, now: Instant) -> float | None:
        """The time at which the next back-off ends; None if there is none. Forgets back-offs that have ended."""
        over = [to_id for to_id, at in self._retry_at.items() if at <= now.monotonic_ms]
        for to_id in over:
            del self._retry_at[to_id]
        return min(self._retry_at.values(), default=None)
