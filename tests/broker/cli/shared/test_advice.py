"""Failures of commands say what to do next."""

import json
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from broker.cli.main import run
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from protocol.messages.describe_cluster import DescribeClusterResponse
from protocol.messages.list_transactions import ListTransactionsResponse
from protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeResponse
from tests.broker.cli.conftest import Ottla
from tests.support.certificates import CertificateAuthority
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
    assert "The listener has no TLS: set security.protocol" in message


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


@contextmanager
def tls_listener(*hosts: str) -> Iterator[tuple[str, CertificateAuthority]]:
    """Listen with a certificate for `hosts`, and yield the address and the authority of the certificate."""
    authority = CertificateAuthority()
    with tempfile.TemporaryDirectory() as directory:
        path = authority.issue("broker", *hosts).write_pem(Path(directory) / "broker.pem")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
                        secured.recv(4096)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}", authority
        finally:
            server.shutdown(socket.SHUT_RDWR)


def test_untrusted_certificate_names_the_trust_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SSL\n")
    with tls_listener("127.0.0.1") as (address, _):
        message = failure_at(address, capsys, "--command-config", str(config))
    assert f"cannot connect to {address}: the TLS hand-shake failed: certificate verify failed" in message
    assert "ssl.truststore.location in the file of --command-config" in message


def test_certificate_of_another_host_names_the_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "client.properties"
    with tls_listener("broker.example") as (address, authority):
        (tmp_path / "ca.pem").write_text(authority.pem)
        config.write_text(
            f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={tmp_path}/ca.pem\n"
        )
        message = failure_at(address, capsys, "--command-config", str(config))
    assert "certificate is not valid for '127.0.0.1'" in message
    assert "issue a certificate for this address" in message


def test_plaintext_client_at_a_tls_listener(capsys: pytest.CaptureFixture[str]) -> None:
    with tls_listener("127.0.0.1") as (address, _):
        message = failure_at(address, capsys)
    assert address in message
    assert "A TLS or SASL listener does that to a client without security.protocol" in message


def test_refused_login_names_the_credentials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "client.properties"
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="wrong";'
    config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
    with FakeBroker() as broker:
        broker.answer(ApiKey.SASL_HANDSHAKE, lambda _: SaslHandshakeResponse(0, ["PLAIN"]))
        refusal = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication failed")
        broker.answer(ApiKey.SASL_AUTHENTICATE, lambda _: refusal)
        message = failure_at(broker.address, capsys, "--command-config", str(config))
    assert "failed the login with PLAIN: Authentication failed" in message
    assert "Check user, password and sasl.mechanism in the file of --command-config." in message
    assert "wrong" not in message


def test_version_mismatch_names_the_api(broker: FakeBroker, ottla: Ottla) -> None:
    outcome = ottla("groups", "--list")
    assert outcome.code == 1
    assert f"{broker.address} does not serve ListGroups." in outcome.err
    assert "`ottla broker-api-versions` shows what each broker serves." in outcome.err


def test_refusals_of_single_objects_say_what_to_do(broker: FakeBroker, ottla: Ottla, tmp_path: Path) -> None:
    refusal = DeletableGroupResult("g", ErrorCode.NON_EMPTY_GROUP)
    broker.answer(ApiKey.DELETE_GROUPS, lambda _: DeleteGroupsResponse(results=[refusal]))
    assert "`ottla consumer-groups --describe --members`" in ottla("consumer-groups", "--delete", "--group", "g").err
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({"partitions": [{"topic": "nope", "partition": 0, "offset": 5}]}))
    assert "`ottla topics --list`" in ottla("delete-records", "--offset-json-file", str(offsets)).err
    assert "`ottla topics --list`" in ottla("topics", "--describe", "--topic", "nope").err
    denied = ListTransactionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    broker.answer(ApiKey.LIST_TRANSACTIONS, lambda _: denied)
    assert "`ottla acls --add`" in ottla("transactions", "list").err
