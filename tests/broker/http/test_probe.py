"""The probe of a container's health check, against a server of the standard library."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from broker.http.probe import READY, answer, listener_of


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
def test_probe_succeeds_for_a_ready_node(host: str, port: int) -> None:
    assert answer(f"{host}:{port}", READY) == (True, '{"status": "ready"}')


def test_probe_fails_for_a_node_that_is_not_ready(port: int) -> None:
    assert answer(f"127.0.0.1:{port}", "/health/live") == (False, '{"reason": "no controller"}')


def test_probe_fails_without_a_listener(port: int) -> None:
    is_well, words = answer("127.0.0.1:1", READY)
    assert not is_well
    assert words.startswith("127.0.0.1:1 does not answer")


@pytest.mark.parametrize(
    ("environ", "settings", "listener"),
    [
        ({}, None, "127.0.0.1:9644"),
        ({}, "#ottla.http.listener=:1\nnode.id=1\n", "127.0.0.1:9644"),
        ({}, "node.id=1\n ottla.http.listener = 0.0.0.0:7\n", "0.0.0.0:7"),
        ({}, "ottla.http.listener=:1\nottla.http.listener:[::]:2\n", "[::]:2"),
        ({"KAFKA_OTTLA_HTTP_LISTENER": ":3"}, "ottla.http.listener=:1\n", ":3"),
    ],
)
def test_probe_uses_the_nodes_http_listener(
    environ: dict[str, str], settings: str | None, listener: str, tmp_path: Path
) -> None:
    mounted = tmp_path / "server.properties"
    if settings is not None:
        mounted.write_text(settings)
    assert listener_of(environ, str(mounted)) == listener
