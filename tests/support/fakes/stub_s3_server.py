"""HTTP server on loopback that sends one planned response per request and records the requests.

For behaviour that a real server does not show on demand: errors, truncated bodies, missing responses.
"""

import contextlib
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import cast


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. The connection ends after `cut_after` bytes of the body, and at once without `status`."""

    status: int | None = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    never: bool = False
    """Respond only when the server is closed."""


def refusal(status: int, code: str) -> Answer:
    return Answer(status, f"<Error><Code>{code}</Code><Message>because</Message></Error>".encode())


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    """Path and query."""
    headers: Mapping[str, str]
    """Headers with names in lower case."""
    body: bytes


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    stub: "StubS3Server"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self._stub.connection_count += 1

    @property
    def _stub(self) -> "StubS3Server":
        return cast(_Server, self.server).stub

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self._stub.take(Request(self.command, self.path, headers, body))
        if answer.never:
            self._stub.closing.wait()
        if answer.status is None or answer.never:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if "Content-Length" not in answer.headers:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[: answer.cut_after])
        if answer.cut_after is not None:
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Suppress logging."""


class StubS3Server:
    """A context manager. Unplanned requests get status 418, which fails the requesting test."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.plan: list[Answer | Callable[[], Answer]] = []
        self.requests: list[Request] = []
        self.connection_count = 0
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.stub = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "http" if tls is None else "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def endpoint(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def take(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            planned = self.plan.pop(0) if self.plan else Answer(418)
            return planned if isinstance(planned, Answer) else planned()

    @property
    def request_lines(self) -> list[str]:
        """Methods and paths of the requests."""
        return [f"{request.method} {request.path}" for request in self.requests]

    def __enter__(self) -> "StubS3Server":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        with contextlib.suppress(OSError):
            self._server.shutdown()
        self._server.server_close()
        self._thread.join()
