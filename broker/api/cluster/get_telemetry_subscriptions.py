"""GetTelemetrySubscriptions (key 71), version 0: the metrics that a client pushes, and its instance id (KIP-714)."""

from broker.api.serving.context import RequestContext
from broker.api.serving.telemetry_client import follow_connection, telemetry_client
from broker.clock import Clock
from broker.telemetry.client_metrics import ACCEPTED_CODECS, ClientMetrics
from protocol.errors import KafkaError
from protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


class GetTelemetrySubscriptionsHandler:
    """Answers GetTelemetrySubscriptions."""

    def __init__(self, metrics: ClientMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock

    def __call__(
        self, request: GetTelemetrySubscriptionsRequest, context: RequestContext
    ) -> GetTelemetrySubscriptionsResponse:
        follow_connection(self._metrics, context)
        client, now_ms = telemetry_client(context), self._clock.monotonic_ms()
        try:
            instance = self._metrics.subscribe(request.client_instance_id, client, now_ms)
        except KafkaError as error:
            return GetTelemetrySubscriptionsResponse(error_code=error.code)
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance.id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=list(ACCEPTED_CODECS),
            push_interval_ms=instance.interval_ms,
            telemetry_max_bytes=self._metrics.max_bytes,
            delta_temporality=True,
            requested_metrics=list(instance.metrics),
        )
