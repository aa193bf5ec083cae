"""Slow requests and traces: which requests are measured, and what is logged about them.

While neither is asked for, a request costs one look at `is_enabled`. A request is known to be slow only at its end, so
the slow log measures every request; a trace by filters measures only the requests that match.
"""

from collections.abc import Callable
from math import inf
from typing import Final, TypeAlias

from broker.clock import Clock
from broker.logs import EventLog
from broker.net.rate_limited_log import RateLimitedLog
from broker.net.request import Request
from broker.net.request_trace import RequestTrace, Stage
from protocol.api_keys import API_BY_KEY, ApiKey
from protocol.lazy_dataclass import lazy_dataclass

LONG_POLLS: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.FETCH, ApiKey.SHARE_FETCH})
"""APIs whose handlers wait for records or members, unless they say that they wait for something else."""
SHOWN_MS_MIN: Final = 0.05
"""Time in a stage below which a line leaves it out."""

OnTrace: TypeAlias = Callable[[Request, RequestTrace, str], None]
"""Takes a request that is slow, traced or both, with its finished trace and its outcome; must not raise."""

_log: Final = EventLog("broker.requests")


@lazy_dataclass(frozen=True, slots=True)
class TraceSettings:
    """Requests to log: those slower than `slow_ms`, and those that match all filters that are set.

    `apis` are API keys, empty for all; `correlation_id` is -1 for all.
    """

    slow_ms: float = inf
    client_id: str = ""
    correlation_id: int = -1
    apis: frozenset[int] = frozenset()
    lines_per_second: int = 10

    @property
    def has_filter(self) -> bool:
        """Whether any filter is set; without one, no request is traced."""
        return bool(self.client_id or self.apis) or self.correlation_id >= 0

    def matches(self, request: Request) -> bool:
        """Whether a request meets all filters. `client_id` may end with * for a prefix."""
        header = request.header
        name = header.client_id or ""
        wanted = self.client_id
        is_client = name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted
        return (
            (not wanted or is_client)
            and (not self.apis or header.api_key in self.apis)
            and self.correlation_id in (-1, header.correlation_id)
        )


class RequestTracing:
    """Begins the traces of requests and logs them, at most `lines_per_second` lines of each kind.

    `on_trace` takes each of these requests once, also those without a line because of the limit.
    """

    def __init__(self, clock: Clock, log: EventLog = _log, *, on_trace: OnTrace | None = None) -> None:
        self.is_enabled = False
        self._clock = clock
        self._log = log
        self._on_trace = on_trace
        self.change(TraceSettings())

    def change(self, settings: TraceSettings) -> None:
        """Use other settings for requests to come."""
        self._settings = settings
        self.is_enabled = settings.has_filter or settings.slow_ms < inf
        burst, refill_ms = settings.lines_per_second, 1000 / settings.lines_per_second
        self._slow = RateLimitedLog(self._log, burst=burst, refill_ms=refill_ms)
        self._traced = RateLimitedLog(self._log, burst=burst, refill_ms=refill_ms, write=self._log.info)

    def begin(self, request: Request) -> None:
        """Give a request a trace if it may be logged. The time since its frame was complete counts as QUEUE, except
        while its connection was muted."""
        settings = self._settings
        if settings.slow_ms == inf and not settings.matches(request):
            return
        now_ms = self._clock.monotonic_ms()
        trace = request.trace = RequestTrace(now_ms, self._clock.monotonic_ms, self._on_finished)
        info = request.connection
        throttled_ms = max(0.0, min(now_ms, info.muted_until_ms) - max(request.arrived_ms, info.muted_from_ms))
        if throttled_ms:
            trace.add(Stage.THROTTLE, throttled_ms)
        trace.add(Stage.QUEUE, now_ms - request.arrived_ms - throttled_ms)

    def on_pending(self, request: Request, trace: RequestTrace) -> None:
        """Note that the response is not ready. A handler that has named its wait is left alone."""
        if trace.stage is Stage.LOCAL:
            trace.enter(Stage.WAIT if request.header.api_key in LONG_POLLS else Stage.OTHER)

    def _on_finished(self, request: Request, trace: RequestTrace, outcome: str) -> None:
        settings, now_ms = self._settings, self._clock.monotonic_ms()
        is_slow = trace.slow_ms >= settings.slow_ms
        is_traced = settings.has_filter and settings.matches(request)
        if is_slow:
            self._slow.report("slow request", now_ms, **_facts(request, trace, outcome))
        if is_traced:
            self._traced.report("request trace", now_ms, **_facts(request, trace, outcome))
        if self._on_trace is not None and (is_slow or is_traced):
            self._on_trace(request, trace, outcome)


def _facts(request: Request, trace: RequestTrace, outcome: str) -> dict[str, object]:
    """Return the fields of a line: the request, the total, and the stages in their order."""
    header, connection = request.header, request.connection
    stages = {
        f"{stage.value}_ms": round(ms, 1) for stage in Stage if (ms := trace.times_ms.get(stage, 0.0)) >= SHOWN_MS_MIN
    }
    return {
        "api": API_BY_KEY[header.api_key].name,
        "version": header.api_version,
        "client": header.client_id or "",
        "correlation_id": header.correlation_id,
        "principal": connection.principal,
        "peer": f"{connection.peer_host}:{connection.peer_port}",
        "listener": connection.listener,
        "bytes": request.size,
        "outcome": outcome,
        "total_ms": round(trace.total_ms, 1),
        **stages,
    }
