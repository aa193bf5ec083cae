"""The time that one request spends in each stage, from its complete frame to its last byte at the transport.

A request has a trace only while tracing is on and concerns it; otherwise `Request.trace` is None and no stage reads the
clock. This file knows neither APIs nor log lines.
"""

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.net.request import Request


class Stage(Enum):
    """A place where a request spends its time. The values are the names in log lines."""

    QUEUE = "queue"
    """Parked behind earlier requests of the connection, or behind other work of the event loop."""
    THROTTLE = "throttle"
    """Parked while a quota muted the connection."""
    LOCAL = "local"
    """Decoding, the handler, and encoding on the event loop."""
    LOG = "log"
    """Appending to logs, or reading from them."""
    REPLICATION = "replication"
    """Waiting until the in-sync replicas, or the disk, have what was appended."""
    REMOTE = "remote"
    """Waiting for reads from remote storage."""
    WAIT = "wait"
    """A long poll that waits for records, or for members of a group. It does not count as slow."""
    OTHER = "other"
    """Waiting for a controller, a coordinator, another node or a thread."""
    SEND = "send"
    """Waiting for earlier responses of the connection, and for a peer that reads slowly."""


class RequestTrace:
    """The stages of one request. `enter` ends the present stage; `finish` ends the trace, once."""

    __slots__ = ("_monotonic_ms", "_on_finished", "_since_ms", "stage", "times_ms")

    def __init__(
        self,
        began_ms: float,
        monotonic_ms: Callable[[], float],
        on_finished: "Callable[[Request, RequestTrace, str], None]",
    ) -> None:
        """Begin in LOCAL at `began_ms`. `on_finished` takes the request, this trace and the outcome."""
        self.stage = Stage.LOCAL
        self.times_ms: dict[Stage, float] = {}
        self._since_ms = began_ms
        self._monotonic_ms = monotonic_ms
        self._on_finished = on_finished

    def enter(self, stage: Stage) -> None:
        """Count the time since the last call for the present stage, and begin `stage`."""
        now_ms = self._monotonic_ms()
        self.add(self.stage, now_ms - self._since_ms)
        self.stage, self._since_ms = stage, now_ms

    def add(self, stage: Stage, ms: float) -> None:
        """Count milliseconds for a stage."""
        self.times_ms[stage] = self.times_ms.get(stage, 0.0) + ms

    def finish(self, request: "Request", outcome: str = "answered") -> None:
        """End the trace of `request`."""
        self.enter(Stage.SEND)
        request.trace = None
        self._on_finished(request, self, outcome)

    @property
    def total_ms(self) -> float:
        """The time in all stages."""
        return sum(self.times_ms.values())

    @property
    def slow_ms(self) -> float:
        """The time in all stages but WAIT."""
        return self.total_ms - self.times_ms.get(Stage.WAIT, 0.0)
