"""A receiver of OpenTelemetry metrics (OTLP/HTTP) that keeps each node's latest export."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric


class Series(NamedTuple):
    """Name and labels of a value."""

    name: str
    labels: frozenset[tuple[str, str]]


class OtlpReceiver:
    """A context manager that serves on a free port. `refuse` makes it answer 503."""

    def __init__(self) -> None:
        self.refuse = False
        self.headers: list[dict[str, str]] = []
        self._exports: dict[str, tuple[int, dict[Series, float]]] = {}
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(receiver.on_request(self.path, dict(self.headers), body))
                answer = ExportMetricsServiceResponse().SerializeToString()
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def on_request(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """Keep an export; return the HTTP status."""
        if self.refuse or path != "/v1/metrics":
            return 503 if self.refuse else 404
        request = ExportMetricsServiceRequest.FromString(gzip.decompress(body))
        for resource in request.resource_metrics:
            attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
            metrics = [metric for scope in resource.scope_metrics for metric in scope.metrics]
            found = {series: value for metric in metrics for series, value in _series(metric)}
            with self._lock:
                self.headers.append(headers)
                node_id = attributes["service.instance.id"]
                self._exports[node_id] = self._exports.get(node_id, (0, {}))[0] + 1, found
        return 200

    def count(self, node_id: str) -> int:
        """Return the number of exports of a node."""
        with self._lock:
            return self._exports.get(node_id, (0, {}))[0]

    def series(self, node_id: str) -> dict[Series, float]:
        """Return the latest export of a node."""
        with self._lock:
            return dict(self._exports[node_id][1])

    def __enter__(self) -> "OtlpReceiver":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _series(metric: Metric) -> list[tuple[Series, float]]:
    points = metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points
    return [
        (
            Series(metric.name, frozenset((each.key, each.value.string_value) for each in point.attributes)),
            point.as_double,
        )
        for point in points
    ]
