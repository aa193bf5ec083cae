"""The HTTP listener of a tailing job, and the thread that watches the high watermark for it.

The listener has threads of its own and serves while a step of the job takes minutes. It is bounded: a few
connections at a time, one request per connection, and a timeout.
"""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, Final, NamedTuple, Protocol

from broker.cli.shared.failure import CommandFailed
from broker.client import ClientError
from broker.metrics.exposition import CONTENT_TYPE, rendered
from protocol.errors import KafkaError
from spark_jobs.metadata_snapshots.progress import STALLED_AFTER_S, JobProgress
from spark_jobs.metadata_source.metadata_log import CommittedBounds, SourceRefused

LOOK_S: Final = 1.0
"""Pause between looks at the high watermark."""
CONNECTIONS_MAX: Final = 16
REQUEST_TIMEOUT_S: Final = 5.0
_JSON: Final = "application/json"


class ListenAt(NamedTuple):
    """The listener's address, and the limit for a lag that does not shrink."""

    host: str
    port: int
    stalled_after_s: float = STALLED_AFTER_S


class WatchedLog(Protocol):
    """The part of MetadataLogClient that the watch uses."""

    def bounds(self) -> CommittedBounds: ...

    def close(self) -> None: ...


class HttpListener:
    """Serves `/health/live`, `/health/ready` and `/metrics` until `close`. Raises OSError if the address is taken."""

    def __init__(self, progress: JobProgress, host: str, port: int) -> None:
        self._server = _Server(host, port, progress)
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, with the actual port in place of 0."""
        host, port = self._server.server_address[:2]
        return str(host), port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class WatermarkWatch:
    """A thread that asks the brokers for the high watermark, with a client of its own, until `close`.

    The job's own client would make the watch wait for the job, and a stop of the job wait for unavailable brokers.
    """

    def __init__(self, progress: JobProgress, open_log: Callable[[], WatchedLog], pause_s: float = LOOK_S) -> None:
        self._progress = progress
        self._open_log = open_log
        self._pause_s = pause_s
        self._is_over = threading.Event()
        # A daemon: a request to brokers that are away must not delay the end of the process.
        threading.Thread(target=self._run, name="high-watermark", daemon=True).start()

    def close(self) -> None:
        self._is_over.set()

    def _run(self) -> None:
        with contextlib.closing(self._open_log()) as log:
            while not self._is_over.is_set():
                try:
                    self._progress.saw_high_watermark(log.bounds().end)
                except KafkaError as error:
                    self._progress.missed_high_watermark(error.message)
                except (ClientError, SourceRefused, OSError) as error:
                    self._progress.missed_high_watermark(str(error))
                self._is_over.wait(self._pause_s)


@contextlib.contextmanager
def listening(progress: JobProgress, at: ListenAt, open_log: Callable[[], WatchedLog]) -> Iterator[HttpListener]:
    """Serve health and metrics. Raises CommandFailed if the address cannot be used."""
    try:
        listener = HttpListener(progress, at.host, at.port)
    except OSError as error:
        raise CommandFailed(f"--http: cannot listen on {at.host}:{at.port}: {error.strerror or error}.") from error
    watch = WatermarkWatch(progress, open_log)
    try:
        yield listener
    finally:
        watch.close()
        listener.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, progress: JobProgress) -> None:
        self.progress = progress
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__((host, port), _Handler)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Serve a connection in a thread; close it if there are too many."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Serve a connection, and make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect within a request."""


class _Handler(BaseHTTPRequestHandler):
    timeout: ClassVar[float] = REQUEST_TIMEOUT_S
    server: _Server
    server_version = "ottla"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a request for one of the three paths."""
        progress = self.server.progress
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, rendered(progress.families()), CONTENT_TYPE)
        elif path == "/health/live":
            self._answer_json(200, {"status": "live"})
        elif path == "/health/ready":
            reason = progress.not_ready_because()
            if reason is None:
                self._answer_json(200, {"status": "ready"} | progress.to_json())
            else:
                self._answer_json(503, {"status": "not ready", "reason": reason} | progress.to_json())
        else:
            self._answer_json(404, {"error": "the paths are /health/live, /health/ready and /metrics"})

    def do_HEAD(self) -> None:
        """Answer like GET, without a body."""
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Write no line per request."""

    def _answer_json(self, status: int, value: object) -> None:
        self._answer(status, json.dumps(value).encode() + b"\n", _JSON)

    def _answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
