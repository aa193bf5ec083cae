"""The sender of a telemetry request, and the end of its connection (KIP-714)."""

from functools import partial

from broker.api.serving.context import RequestContext
from broker.telemetry.client_metrics import ClientMetrics, TelemetryClient


def telemetry_client(context: RequestContext) -> TelemetryClient:
    """Return the attributes that subscriptions match."""
    connection = context.connection
    return TelemetryClient(
        context.client_id,
        connection.client_software_name,
        connection.client_software_version,
        connection.peer_host,
        connection.peer_port,
        connection.connection_id,
    )


def follow_connection(metrics: ClientMetrics, context: RequestContext) -> None:
    """Forget the client's instance when its connection closes. Does nothing after a connection's first request."""
    connection = context.connection
    if metrics.on_request(connection.connection_id):
        connection.when_closed(partial(metrics.on_disconnect, connection.connection_id))
