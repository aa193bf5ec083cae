"""Spans out of requests: ids, times and attributes.

Attributes have the names of OpenTelemetry's semantic conventions where these have one, else names below `kafka.` and
`ottla.`. Stages are attributes and not child spans, because a request may enter a stage several times.
"""

from typing import Final, Protocol

from broker.clock import Clock
from broker.metrics.otel.span_buffer import RequestSpan, SpanBuffer
from broker.net.request import Request
from broker.net.request_trace import RequestTrace
from protocol.api_keys import API_BY_KEY

TEXT_CHARACTERS_MAX: Final = 1024
"""Characters of a client id or principal that a span keeps, because clients choose them and spans wait in memory."""
_TRACE_ID_BITS: Final = 128
_SPAN_ID_BITS: Final = 64
_NS_PER_MS: Final = 1_000_000


class RandomBits(Protocol):
    """The part of `random.Random` that ids need."""

    def getrandbits(self, count: int, /) -> int:
        """Return an integer of `count` random bits."""
        ...


class SpanRecorder:
    """Turns finished requests into spans. A span holds no part of its request, so that the frame is released."""

    def __init__(self, buffer: SpanBuffer, clock: Clock, random: RandomBits) -> None:
        self._buffer = buffer
        self._clock = clock
        self._random = random

    def record(self, request: Request, trace: RequestTrace, outcome: str) -> None:
        """Add the span of a request that ends now."""
        end_ns = self._clock.now_ms() * _NS_PER_MS
        self._buffer.add(
            RequestSpan(
                trace_id=self._random.getrandbits(_TRACE_ID_BITS) or 1,  # 0 is no valid id
                span_id=self._random.getrandbits(_SPAN_ID_BITS) or 1,
                name=API_BY_KEY[request.header.api_key].name,
                start_ns=end_ns - round(trace.total_ms * _NS_PER_MS),
                end_ns=end_ns,
                attributes=_attributes(request, trace, outcome),
            )
        )


def _attributes(request: Request, trace: RequestTrace, outcome: str) -> dict[str, str | int | float]:
    header, connection = request.header, request.connection
    client_id = {"messaging.client.id": header.client_id[:TEXT_CHARACTERS_MAX]} if header.client_id else {}
    stages = {f"ottla.stage.{stage.value}_ms": round(ms, 3) for stage, ms in trace.times_ms.items()}
    return {
        "messaging.system": "kafka",
        **client_id,
        "kafka.api.name": API_BY_KEY[header.api_key].name,
        "kafka.api.version": header.api_version,
        "kafka.correlation_id": header.correlation_id,
        "client.address": connection.peer_host,
        "client.port": connection.peer_port,
        "enduser.id": connection.principal[:TEXT_CHARACTERS_MAX],
        "ottla.listener": connection.listener,
        "ottla.request.size_bytes": request.size,
        "ottla.outcome": outcome,
        **stages,
    }
