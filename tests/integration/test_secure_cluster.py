"""`ottla cluster --secure` with one node: the super user works with it, everybody else is refused."""

import contextlib
import datetime
import re
import ssl
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from broker.cli.main import run
from broker.config.load import read_properties
from broker.tls.authority import PrivateAuthority
from tests.support.clients.partition_states import until
from tests.support.processes.ottla_cluster import OttlaCluster

pytestmark = pytest.mark.integration

DEADLINE_S = 20
REVOCATION_S = 2
"""Time within which a revoked right has no effect any more on a busy machine; the broker needs milliseconds."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaCluster]:
    settings = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    settings["ottla.ssl.reload.interval.ms"] = "500"
    with OttlaCluster(tmp_path_factory.mktemp("secure") / "c", 1, settings, secure=True) as running:
        yield running


def admin(cluster: OttlaCluster) -> dict[str, str]:
    return read_properties(str(cluster.directory / "secure" / "librdkafka.properties"))


def send(settings: Mapping[str, str], value: str) -> None:
    failures: list[object] = []
    producer = confluent_kafka.Producer({**settings})
    producer.produce("orders", value, callback=lambda error, _: failures.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert failures == [None]


class SteadyLoad:
    """A context manager that produces one record after another on a thread, and keeps the outcome of each."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._producer = confluent_kafka.Producer({**settings, "enable.idempotence": True, "linger.ms": 0})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.delivered = 0
        self.failures: list[int] = []

    def _run(self) -> None:
        while not self._is_over.wait(0.01):
            try:
                self._producer.produce("orders", b"steady", callback=self._on_outcome)
            except confluent_kafka.KafkaException as error:  # librdkafka has learned that the topic is forbidden
                self.failures.append(error.args[0].code())
            self._producer.poll(0)

    def _on_outcome(self, error: confluent_kafka.KafkaError | None, _: object) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failures.append(error.code())

    def __enter__(self) -> Self:
        self._thread.start()
        until(lambda: self.delivered > 0, DEADLINE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(DEADLINE_S) == 0


def refusal(settings: Mapping[str, str]) -> confluent_kafka.KafkaError:
    """Return the first error of a client."""
    errors: list[confluent_kafka.KafkaError] = []
    client = AdminClient({**settings, "error_cb": errors.append})
    deadline = time.monotonic() + DEADLINE_S
    while not errors:
        assert time.monotonic() < deadline
        client.poll(0.1)
    return errors[0]


def test_super_user_produces_and_consumes(cluster: OttlaCluster) -> None:
    send(admin(cluster), "first")
    consumer = confluent_kafka.Consumer({**admin(cluster), "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(DEADLINE_S)
    assert message is not None
    assert message.value() == b"first"
    consumer.close()


def test_others_are_refused(cluster: OttlaCluster) -> None:
    wrong = refusal({**admin(cluster), "sasl.password": "wrong"})
    assert wrong.code() == confluent_kafka.KafkaError._AUTHENTICATION
    plain = {"bootstrap.servers": cluster.bootstrap}
    with_tls = {**plain, "security.protocol": "SSL", "ssl.ca.location": admin(cluster)["ssl.ca.location"]}
    for anonymous in (plain, with_tls):
        with pytest.raises(confluent_kafka.KafkaException):
            AdminClient(anonymous).list_topics(timeout=0.3)


def test_commands_and_rotation(cluster: OttlaCluster, capsys: pytest.CaptureFixture[str]) -> None:
    client_file = str(cluster.directory / "secure" / "client.properties")
    former = admin(cluster)
    certificate = (cluster.directory / "secure" / "node-1.pem").read_text()
    assert run(["cluster", "--rotate-secrets", "--dir", str(cluster.directory)]) == 0
    assert "certificates of node-1 are renewed" in capsys.readouterr().out
    assert refusal(former).code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert certificate != (cluster.directory / "secure" / "node-1.pem").read_text()
    command = ["topics", "--bootstrap-server", cluster.bootstrap, "--command-config", client_file, "--list"]
    assert run(command) == 0
    send(admin(cluster), "second")


def test_authority_is_replaced_while_the_cluster_runs(
    cluster: OttlaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    trust = cluster.directory / "secure" / "ca.pem"
    rotation = ["cluster", "--rotate-secrets", "--dir", str(cluster.directory)]
    former = trust.read_text()
    with SteadyLoad(admin(cluster)) as load:
        assert run([*rotation, "--new-authority"]) == 0
        assert "has a new authority beside the former one" in capsys.readouterr().out
        assert trust.read_text().endswith(former)
        for _ in range(2):
            assert run(rotation) == 0
            send(admin(cluster), "by the new authority")
        assert former not in trust.read_text()
        send(admin(cluster), "alone")
    assert load.failures == [], "a connected client notices no rotation"


def test_certificate_is_replaced_by_dynamic_config_under_load(cluster: OttlaCluster) -> None:
    """The node serves another file at once; the former file serves on while the new one does not parse."""
    at = ["--bootstrap-server", cluster.bootstrap, "--command-config"]
    at.append(str(cluster.directory / "secure" / "client.properties"))
    secure, key = cluster.directory / "secure", "listener.name.client.ssl.keystore.location"
    authority = PrivateAuthority.from_pem((secure / "ca.pem").read_text(), (secure / "ca-key.pem").read_text())
    other, broken = secure / "other.pem", secure / "broken.pem"
    for file, text in (
        (other, authority.issue("node-1", ["127.0.0.1", "localhost"], datetime.datetime.now(datetime.UTC))),
        (broken, "no certificate"),
    ):
        file.touch(mode=0o600)
        file.write_text(text)
    host, port = cluster.bootstrap.split(":")
    former = ssl.get_server_certificate((host, int(port)))
    alter = ["configs", *at, "--alter", "--broker", "1", "--add-config"]
    with SteadyLoad(admin(cluster)) as load:
        assert run([*alter, f"{key}={other}"]) == 0
        until(lambda: ssl.get_server_certificate((host, int(port))) in other.read_text(), DEADLINE_S)
        assert run([*alter, f"{key}={broken}"]) == 1
        send(admin(cluster), "with the other certificate")
        assert run(["configs", *at, "--alter", "--broker", "1", "--delete-config", key]) == 0
        until(lambda: ssl.get_server_certificate((host, int(port))) == former, DEADLINE_S)
    assert load.failures == []
    other.unlink()
    broken.unlink()


def test_revoked_user_is_out_at_once_and_others_notice_nothing(cluster: OttlaCluster) -> None:
    at = ["--bootstrap-server", cluster.bootstrap, "--command-config"]
    at.append(str(cluster.directory / "secure" / "client.properties"))
    carol = ["--allow-principal", "User:carol", "--producer", "--topic", "orders"]
    assert run(["configs", *at, "--alter", "--user", "carol", "--add-config", "SCRAM-SHA-512=[password=of carol]"]) == 0
    assert run(["acls", *at, "--add", *carol]) == 0
    as_carol = {**admin(cluster), "sasl.username": "carol", "sasl.password": "of carol"}
    with SteadyLoad(admin(cluster)) as of_admin, SteadyLoad(as_carol) as of_carol:
        assert of_carol.failures == []
        assert run(["acls", *at, "--remove", "--force", *carol]) == 0
        until(lambda: len(of_carol.failures) > 10, REVOCATION_S)
    assert {*of_carol.failures} == {confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED}
    assert of_admin.failures == []
    assert run(["configs", *at, "--alter", "--user", "carol", "--delete-config", "SCRAM-SHA-512"]) == 0
    assert refusal(as_carol).code() == confluent_kafka.KafkaError._AUTHENTICATION


def test_secrets_are_in_private_files_only(cluster: OttlaCluster) -> None:
    """Scan logs, command lines, metadata, and metrics for the password."""
    secure = cluster.directory / "secure"
    password = admin(cluster)["sasl.password"].encode()
    assert {stat.S_IMODE(path.stat().st_mode) for path in secure.iterdir()} == {0o600}
    shown = {path for path in cluster.directory.rglob("*") if path.is_file() and password in path.read_bytes()}
    assert {path.parent for path in shown} == {secure}
    pid = cluster.pid(0)
    assert password not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert password not in "\n".join(cluster.lines).encode()
    assert not re.search(r"WARNING .*(readable|may read|password)", cluster.log_text(0))


def test_start_without_secure_is_refused(cluster: OttlaCluster, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        assert run(["cluster", "--nodes", "1", "--dir", str(cluster.directory)]) == 1
    assert "holds a secure cluster; start it with --secure" in capsys.readouterr().err
