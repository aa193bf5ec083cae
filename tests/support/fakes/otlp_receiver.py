"""A receiver of OpenTelemetry metrics and spans (OTLP/HTTP) that keeps each node's latest metrics and all spans."""

import gzip
import threading
from collections.abc import Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Series(NamedTuple):
    """Name and labels of a value."""

    name: str
    labels: frozenset[tuple[str, str]]


class ReceivedSpan(NamedTuple):
    """A span, with the attributes of its resource."""

    span: Span
    attributes: Mapping[str, str | int | float]
    resource: Mapping[str, str | int | float]


class OtlpReceiver:
    """A context manager that serves on a free port. `refusal` is the HTTP status of refused exports, None to accept."""

    def __init__(self) -> None:
        self.refusal: int | None = None
        self.headers: list[dict[str, str]] = []
        self._exports: dict[str, tuple[int, dict[Series, float]]] = {}
        self._batches: list[list[ReceivedSpan]] = []
        self._lock = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(receiver.on_request(self.path, dict(self.headers), body))
                answer = _RESPONSES.get(self.path, b"")
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
        if self.refusal is not None or path not in _RESPONSES:
            return self.refusal or 404
        content = gzip.decompress(body)
        with self._lock:
            self.headers.append(headers)
            if path == "/v1/traces":
                self._batches.append(_spans(content))
            else:
                self._keep_metrics(content)
            self._lock.notify_all()
        return 200

    def _keep_metrics(self, content: bytes) -> None:
        request = ExportMetricsServiceRequest.FromString(content)
        for resource in request.resource_metrics:
            attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
            metrics = [metric for scope in resource.scope_metrics for metric in scope.metrics]
            found = {series: value for metric in metrics for series, value in _series(metric)}
            node_id = attributes["service.instance.id"]
            self._exports[node_id] = self._exports.get(node_id, (0, {}))[0] + 1, found

    def count(self, node_id: str) -> int:
        """Return the number of exports of a node."""
        with self._lock:
            return self._exports.get(node_id, (0, {}))[0]

    def series(self, node_id: str) -> dict[Series, float]:
        """Return the latest export of a node."""
        with self._lock:
            return dict(self._exports[node_id][1])

    def batches(self) -> Sequence[Sequence[ReceivedSpan]]:
        """Return the spans of each export so far."""
        with self._lock:
            return [list(batch) for batch in self._batches]

    def wait_for_spans(self, count: int, limit_s: float) -> list[ReceivedSpan]:
        """Return all spans once there are `count`. Raise AssertionError when that takes too long."""
        with self._lock:
            is_reached = self._lock.wait_for(lambda: sum(map(len, self._batches)) >= count, limit_s)
            found = [each for batch in self._batches for each in batch]
        assert is_reached, f"{len(found)} spans of {count} arrived in time"
        return found

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


_RESPONSES: Final = {
    "/v1/metrics": ExportMetricsServiceResponse().SerializeToString(),
    "/v1/traces": ExportTraceServiceResponse().SerializeToString(),
}
"""The response to an export by path."""


def _spans(content: bytes) -> list[ReceivedSpan]:
    return [
        ReceivedSpan(span, _values(span.attributes), _values(resource.resource.attributes))
        for resource in ExportTraceServiceRequest.FromString(content).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _values(attributes: Iterable[KeyValue]) -> dict[str, str | int | float]:
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in attributes}
