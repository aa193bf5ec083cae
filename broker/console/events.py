"""Server-sent events: the overview at every sample, for all listeners the same bytes."""

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from broker.console.overview import Overview
from broker.console.request import ConsoleError, ConsoleRequest
from broker.console.sampling import ClusterSample, ClusterSampler
from broker.logs import EventLog
from protocol.errors import KafkaError

LISTENERS_MAX: Final = 50
_RETRY: Final = b"retry: 3000\n\n"
_QUIET: Final = b": alive\n\n"
_QUIET_S: Final = 15.0
_BYE: Final = b"event: bye\ndata: {}\n\n"

_log: Final = EventLog("broker.console")


class EventHub:
    """Sends the overview to all listeners."""

    def __init__(self, overview: Overview, sampler: ClusterSampler) -> None:
        self._overview = overview
        self._sampler = sampler
        self._listeners: set[OverviewEvents] = set()
        self._sending: asyncio.Task[None] | None = None
        self._latest: bytes | None = None
        self._is_closed = False

    def events(self, request: ConsoleRequest) -> "OverviewEvents":
        """Return the events of a new listener. Raise ConsoleError without the right, or if there are too many."""
        self._overview.check(request)
        if self._is_closed or len(self._listeners) >= LISTENERS_MAX:
            raise ConsoleError(HTTPStatus.SERVICE_UNAVAILABLE, "Too many browsers follow this node; use another node.")
        return OverviewEvents(self, lambda: self._is_allowed(request))

    def join(self, listener: "OverviewEvents") -> None:
        """Send events to a listener, the latest at once."""
        if not self._listeners:
            self._sampler.observe(self._on_sample)
        self._listeners.add(listener)
        if self._latest is not None:
            listener.send(self._latest)

    def leave(self, listener: "OverviewEvents") -> None:
        """Send nothing more to a listener."""
        self._listeners.discard(listener)
        if not self._listeners:
            self._sampler.forget(self._on_sample)
            self._latest = None

    def close(self) -> None:
        """Tell all listeners that the node stops, and end their streams."""
        self._is_closed = True
        for listener in list(self._listeners):
            listener.end()
        if self._sending is not None:
            self._sending.cancel()

    def _is_allowed(self, request: ConsoleRequest) -> bool:
        try:
            self._overview.check(request)
        except (ConsoleError, KafkaError):
            return False
        return True

    def _on_sample(self, sample: ClusterSample) -> None:
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._send(sample))

    async def _send(self, sample: ClusterSample) -> None:
        try:
            text = json.dumps(await self._overview.live(sample), separators=(",", ":"))
        except Exception as error:  # noqa: BLE001  the next sample is another chance
            _log.error("The overview of the cluster failed", error)
            return
        if self._listeners:
            self._latest = f"event: overview\ndata: {text}\n\n".encode()
            for listener in list(self._listeners):
                listener.send(self._latest)


class OverviewEvents:
    """The events of one browser, until it goes, the node stops, or its principal loses the right."""

    def __init__(self, hub: EventHub, is_allowed: Callable[[], bool]) -> None:
        self._hub = hub
        self._is_allowed = is_allowed
        self._send: Callable[[bytes], None] | None = None
        self._end: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def open(self, send: Callable[[bytes], None], end: Callable[[], None]) -> None:
        """Begin to send events."""
        self._send, self._end = send, end
        send(_RETRY)
        self._hub.join(self)
        self._keep_alive()

    def close(self) -> None:
        """Send no more: the browser has gone."""
        self._send = self._end = None
        self._hub.leave(self)
        if self._timer is not None:
            self._timer.cancel()

    def send(self, event: bytes) -> None:
        """Send one event, or end the stream if the principal may not see it any more."""
        if self._send is None:
            return
        if self._is_allowed():
            self._send(event)
        else:
            self.end()

    def end(self) -> None:
        """Say good-bye and end the stream."""
        send, end = self._send, self._end
        self.close()
        if send is not None and end is not None:
            send(_BYE)
            end()

    def _keep_alive(self) -> None:
        self.send(_QUIET)
        if self._send is not None:
            self._timer = asyncio.get_running_loop().call_later(_QUIET_S, self._keep_alive)
