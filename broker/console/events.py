"""Server-sent events: the overview at every sample, for all listeners the same bytes."""

import asyncio
import json
from collections.abc import Callable
from typing import Final

from broker.console.overview import Overview
from broker.console.sampling import ClusterSample, ClusterSampler
from broker.logs import EventLog

LISTENERS_MAX: Final = 50
_RETRY: Final = b"retry: 3000\n\n"
_QUIET: Final = b": alive\n\n"
_QUIET_S: Final = 15.0

_log: Final = EventLog("broker.console")


class EventHub:
    """Sends the overview to all listeners."""

    def __init__(self, overview: Overview, sampler: ClusterSampler) -> None:
        self._overview = overview
        self._sampler = sampler
        self._listeners: set[OverviewEvents] = set()
        self._sending: asyncio.Task[None] | None = None
        self._latest: bytes | None = None

    @property
    def is_full(self) -> bool:
        """Whether no further listener is accepted."""
        return len(self._listeners) >= LISTENERS_MAX

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
        """Tell all listeners that the node stops."""
        for listener in list(self._listeners):
            listener.send(b"event: bye\ndata: {}\n\n")

    def _on_sample(self, sample: ClusterSample) -> None:
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._send(sample))

    async def _send(self, sample: ClusterSample) -> None:
        try:
            text = json.dumps(await self._overview.live(sample), separators=(",", ":"))
        except Exception as error:  # noqa: BLE001  the next sample is another chance
            _log.error("The overview of the cluster failed", error)
            return
        self._latest = f"event: overview\ndata: {text}\n\n".encode()
        for listener in list(self._listeners):
            listener.send(self._latest)


class OverviewEvents:
    """The events of one browser."""

    def __init__(self, hub: EventHub) -> None:
        self._hub = hub
        self._send: Callable[[bytes], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def open(self, send: Callable[[bytes], None]) -> None:
        """Begin to send events."""
        self._send = send
        send(_RETRY)
        self._hub.join(self)
        self._keep_alive()

    def close(self) -> None:
        """End: the browser has gone."""
        self._send = None
        self._hub.leave(self)
        if self._timer is not None:
            self._timer.cancel()

    def send(self, event: bytes) -> None:
        """Send one event."""
        if self._send is not None:
            self._send(event)

    def _keep_alive(self) -> None:
        self.send(_QUIET)
        self._timer = asyncio.get_running_loop().call_later(_QUIET_S, self._keep_alive)
