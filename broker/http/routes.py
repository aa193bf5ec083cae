"""The routes of every node: liveness, readiness and metrics."""

from collections.abc import Awaitable, Callable

from broker.http.messages import HttpRequest, HttpResponse, Routes, json_response
from broker.metrics.exposition import CONTENT_TYPE


def node_routes(
    *, not_ready_because: Callable[[], str | None], render_metrics: Callable[[], Awaitable[bytes]]
) -> Routes:
    """Return `/health/live`, `/health/ready` and `/metrics`.

    `not_ready_because` returns the reason why clients should not connect now, or None.
    """

    def live(request: HttpRequest) -> HttpResponse:
        # The event loop runs, which is all that liveness means. Whether clients are served is readiness.
        return json_response(200, {"status": "live"})

    def ready(request: HttpRequest) -> HttpResponse:
        reason = not_ready_because()
        if reason is None:
            return json_response(200, {"status": "ready"})
        return json_response(503, {"status": "not ready", "reason": reason})

    async def metrics(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, await render_metrics(), CONTENT_TYPE)

    return {"/health/live": live, "/health/ready": ready, "/metrics": metrics}
