"""The HTTP server of a node with TLS and credentials, on real sockets and both event loops."""

import asyncio
import http.client
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from broker.config.errors import ConfigError
from broker.config.load import load_config
from broker.http.messages import HttpResponse
from broker.http.probe import answer
from broker.node.http import build_http
from tests.support.certificates import CertificateAuthority

AUTHORITY = CertificateAuthority()
ROUTES = {path: lambda _request: HttpResponse(200, b"ok\n") for path in ("/health/ready", "/metrics")}


def settings(directory: Path) -> list[str]:
    (directory / "credentials").touch(0o600)
    (directory / "credentials").write_text("scraper:hunter2\n")
    key = AUTHORITY.issue("node", "localhost", "127.0.0.1").write_pem(directory / "node.pem")
    return [
        "ottla.http.listener=127.0.0.1:0",
        f"ottla.http.credentials.location={directory / 'credentials'}",
        f"ottla.http.ssl.keystore.location={key}",
    ]


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_metrics_need_credentials_and_health_does_not(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    http_side = build_http(load_config(None, settings(tmp_path), {})[0], ROUTES)
    assert http_side is not None
    server = http_side.server
    server.open()
    assert server.url.startswith("https://127.0.0.1:")
    context = ssl.create_default_context(cadata=AUTHORITY.pem)

    def ask(path: str, authorization: str | None = None) -> tuple[int, str | None]:
        connection = http.client.HTTPSConnection(*server.address, timeout=10, context=context)
        connection.request("GET", path, headers={} if authorization is None else {"Authorization": authorization})
        response = connection.getresponse()
        response.read()
        connection.close()
        return response.status, response.getheader("WWW-Authenticate")

    async def run() -> None:
        await server.start()
        try:
            assert await asyncio.to_thread(ask, "/health/ready") == (200, None)
            status, challenge = await asyncio.to_thread(ask, "/metrics")
            assert (status, challenge) == (401, 'Basic realm="ottla", charset="UTF-8", Bearer realm="ottla"')
            assert (await asyncio.to_thread(ask, "/unknown"))[0] == 401
            assert (await asyncio.to_thread(ask, "/metrics", "Basic c2NyYXBlcjpodW50ZXIy"))[0] == 200
            listener = f"127.0.0.1:{server.address[1]}"
            assert await asyncio.to_thread(lambda: answer(listener, "/health/ready", tls=True)) == (True, "ok")
        finally:
            server.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


def test_files_that_cannot_be_used_are_one_sentence(tmp_path: Path) -> None:
    for given, reason in (
        (f"ottla.http.credentials.location={tmp_path / 'none'}", "cannot be read: No such file or directory"),
        (
            f"ottla.http.ssl.keystore.location={tmp_path / 'none'}",
            r"ottla\.http\.ssl\.keystore\.location cannot be read",
        ),
    ):
        with pytest.raises(ConfigError, match=reason):
            build_http(load_config(None, [given], {})[0], ROUTES)


def test_credentials_that_everybody_may_read_warn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = settings(tmp_path)
    (tmp_path / "credentials").chmod(0o644)
    build_http(load_config(None, given, {})[0], ROUTES)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("ottla.http.credentials.location: every user of this machine may read")
    assert "hunter2" not in warning
