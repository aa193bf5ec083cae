"""Failures of commands say what to do next."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from broker.cli.main import run
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import DescribeClusterResponse
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import FakeBroker


@contextmanager
def listener(answer: bytes | None) -> Iterator[str]:
    """Listen, send `answer` to each connection and close it; None sends nothing and keeps it open."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    held.append(connection)
                    if answer is not None:
                        connection.recv(4096)
                        connection.sendall(answer)
                        connection.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for connection in held:
                connection.close()


def failure_at(address: str, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert run(["topics", "--list", "--bootstrap-server", address, *options]) == 1
    return capsys.readouterr().err


def test_refused_connection(capsys: pytest.CaptureFixture[str]) -> None:
    assert failure_at("127.0.0.1:1", capsys) == (
        "Error: cannot connect to 127.0.0.1:1: Connection refused. Start a broker there, or name another one with"
        " --bootstrap-server.\n"
    )


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "The port belongs to another program"),
        (b"", "set the property by --command-config"),
    ],
)
def test_ports_of_others(answer: bytes, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with listener(answer) as address:
        assert hint in failure_at(address, capsys)


def test_silent_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "client.properties"
    config.write_text("socket.connection.setup.timeout.ms=50\nrequest.timeout.ms=50\ndefault.api.timeout.ms=50\n")
    with listener(None) as address:
        message = failure_at(address, capsys, "--command-config", str(config))
    assert "request.timeout.ms in the file of --command-config raises the limit." in message


def test_tls_client_at_a_plaintext_listener(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SSL\n")
    with listener(b"no TLS") as address:
        message = failure_at(address, capsys, "--command-config", str(config))
    assert "Check that the listener uses TLS" in message


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "`ottla acls --add`"),
        (ErrorCode.SECURITY_DISABLED, "authorizer.class.name"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "`ottla topics --list`"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "`ottla groups --list`"),
    ],
)
def test_refusals_of_the_broker(
    code: ErrorCode, hint: str, broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.answer(ApiKey.DESCRIBE_CLUSTER, lambda _: DescribeClusterResponse(error_code=code))
    assert run(["cluster", "cluster-id", "--bootstrap-server", broker.address]) == 1
    assert hint in capsys.readouterr().err


def test_missing_file_of_properties(ottla: Ottla) -> None:
    outcome = ottla("topics", "--list", "--command-config", "/nowhere/client.properties")
    assert (outcome.code, outcome.err) == (
        1,
        "Error: cannot read /nowhere/client.properties: No such file or directory.\n",
    )
