"""The probe of a container's health check, against a server of the standard library."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from broker.http.probe import READY, answer


class _Node(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_well = self.path == READY
        self.send_response(200 if is_well else 503)
        self.end_headers()
        self.wfile.write(b'{"status": "ready"}' if is_well else b'{"reason": "no controller"}')

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), _Node) as server:
        serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield server.server_port
        server.shutdown()
        serving.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", ""])
def test_a_node_that_is_ready(host: str, port: int) -> None:
    assert answer(f"{host}:{port}", READY) == (True, '{"status": "ready"}')


def test_a_node_that_is_not(port: int) -> None:
    assert answer(f"127.0.0.1:{port}", "/health/live") == (False, '{"reason": "no controller"}')


def test_nobody_there(port: int) -> None:
    is_well, words = answer("127.0.0.1:1", READY)
    assert not is_well
    assert words.startswith("127.0.0.1:1 does not answer")
