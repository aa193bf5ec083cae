"""PushTelemetry (key 72), version 0: metrics of a client in OTLP, compressed or not (KIP-714)."""

from broker.api.serving.context import RequestContext
from broker.api.serving.telemetry_client import follow_connection, telemetry_client
from broker.clock import Clock
from broker.telemetry.client_metrics import ClientMetrics, ClientPush
from protocol.errors import KafkaError
from protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


class PushTelemetryHandler:
    """Answers PushTelemetry."""

    def __init__(self, metrics: ClientMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock

    def __call__(self, request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
        follow_connection(self._metrics, context)
        push = ClientPush(
            request.client_instance_id,
            request.subscription_id,
            request.terminating,
            request.compression_type,
            request.metrics,
        )
        try:
            self._metrics.push(push, telemetry_client(context), self._clock.monotonic_ms())
        except KafkaError as error:
            return PushTelemetryResponse(error_code=error.code)
        return PushTelemetryResponse()
