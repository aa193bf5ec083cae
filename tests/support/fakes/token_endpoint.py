"""A token endpoint of an identity provider on loopback, on a thread of its own."""

import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Self


class TokenEndpoint:
    """A context manager that answers each POST with the (status, body) that `answer` returns.

    `bodies` are those of the requests. Redirections lead to an address at which nobody listens. With `key_file`, a PEM
    file of a private key and its certificate, the endpoint is an https one.
    """

    def __init__(self, answer: Callable[[], tuple[int, bytes]], key_file: Path | None = None) -> None:
        self.bodies: list[bytes] = []
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                status, body = answer()
                self.send_response(status)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Stay silent."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._scheme = "http" if key_file is None else "https"
        if key_file is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(key_file)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}/token"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
