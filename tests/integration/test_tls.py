"""Three nodes with TLS on client, inter-broker and controller listeners, and real clients."""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from broker.client import Client, ClientConfig, ClientError
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.support.certificates import CertificateAuthority, Identity
from tests.support.processes.ottla_node import run_ottla
from tests.support.processes.tls_cluster import HOSTS, KEY_PASSWORD, STORE_PASSWORD, TlsCluster

pytestmark = pytest.mark.integration

DEADLINE_S = 60
MESSAGES = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    with TlsCluster(tmp_path_factory.mktemp("tls")) as running:
        admin = AdminClient(running.librdkafka())
        topics = [NewTopic(name, 1, 3, config={"min.insync.replicas": "3"}) for name in ("tls", "mtls", "aiokafka")]
        for created in admin.create_topics(topics).values():
            created.result(DEADLINE_S)
        yield running


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("topic", ["tls", "mtls"])
def test_librdkafka_produces_to_replicas_and_consumes(cluster: TlsCluster, topic: str) -> None:
    """A produce with three required in-sync replicas shows that followers fetch over TLS."""
    config = cluster.librdkafka(cluster.alice if topic == "mtls" else None)
    producer = confluent_kafka.Producer({**config, "acks": "all"})
    failures: list[object] = []
    for number in range(MESSAGES):
        producer.produce(
            topic, f"{number}".encode(), callback=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(DEADLINE_S) == 0
    assert failures == []
    consumer = confluent_kafka.Consumer({**config, "group.id": topic})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    messages = consumer.consume(MESSAGES, DEADLINE_S)
    assert [message.value() for message in messages] == [f"{number}".encode() for number in range(MESSAGES)]
    consumer.close()


def context_of(cluster: TlsCluster, identity: Identity | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(cluster.trust))
    if identity is not None:
        context.load_cert_chain(cluster.key_file("client.pem", identity))
    return context


async def test_aiokafka_produces_and_consumes_over_mutual_tls(cluster: TlsCluster) -> None:
    tls = {"security_protocol": "SSL", "ssl_context": context_of(cluster, cluster.alice)}
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", **tls) as producer:
        for number in range(10):
            await producer.send_and_wait("aiokafka", f"{number}".encode())
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, **tls)
    async with consumer, asyncio.timeout(DEADLINE_S):
        consumer.assign([partition := aiokafka.TopicPartition("aiokafka", 0)])
        await consumer.seek_to_beginning(partition)
        assert [(await consumer.getone()).value for _ in range(10)] == [f"{number}".encode() for number in range(10)]


@pytest.mark.parametrize("index", range(3))
def test_requests_forwarded_to_the_controller_carry_the_principal(cluster: TlsCluster, index: int) -> None:
    """Only the active controller issues tokens; any broker forwards the request."""
    properties = cluster.client_properties(cluster.alice)
    with Client(ClientConfig.parse(cluster.nodes[index].bootstrap, properties)) as client:
        answer = client.call(CreateDelegationTokenRequest(), CreateDelegationTokenResponse)
    assert (answer.error_code, answer.principal_type, answer.principal_name) == (0, "User", "alice")
    with Client(ClientConfig.parse(cluster.nodes[index].bootstrap, cluster.client_properties())) as client:
        assert client.call(CreateDelegationTokenRequest(), CreateDelegationTokenResponse).error_code == 64


def test_controllers_serve_clients_with_a_certificate_alone(cluster: TlsCluster) -> None:
    address = f"127.0.0.1:{cluster.nodes[0].controller_port}"
    with Client(ClientConfig.parse(address, cluster.client_properties(cluster.alice))) as client:
        found = client.call(DescribeClusterRequest(endpoint_type=2), DescribeClusterResponse)
        assert sorted(node.broker_id for node in found.brokers) == [1, 2, 3]
    with Client(ClientConfig.parse(address, cluster.client_properties())) as client, pytest.raises(ClientError):
        client.call(DescribeClusterRequest(endpoint_type=2), DescribeClusterResponse)


def test_client_refuses_a_cluster_that_it_does_not_trust(cluster: TlsCluster) -> None:
    stranger = cluster.directory / "stranger.pem"
    stranger.write_text(CertificateAuthority("Stranger").pem)
    properties = cluster.client_properties() | {"ssl.truststore.location": str(stranger)}
    with (
        Client(ClientConfig.parse(cluster.nodes[0].bootstrap, properties)) as client,
        pytest.raises(ClientError, match="the TLS hand-shake failed: certificate verify failed"),
    ):
        client.metadata()


def certificate_of(cluster: TlsCluster, port: int) -> bytes | None:
    with (
        socket.create_connection(("127.0.0.1", port), DEADLINE_S) as plain,
        context_of(cluster, None).wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        return secure.getpeercert(binary_form=True)


def test_certificates_change_while_the_broker_runs(cluster: TlsCluster) -> None:
    node = cluster.nodes[0]
    renewed, another = (cluster.authority.issue(name, *HOSTS) for name in ("renewed", "another"))
    present = node.settings["listener.name.clients.ssl.keystore.location"]
    os.replace(cluster.key_file("renewed.pem", renewed), present)
    until(lambda: certificate_of(cluster, node.port) == renewed.der)

    admin = AdminClient(cluster.librdkafka() | {"bootstrap.servers": node.bootstrap})

    def alter(path: str) -> None:
        name = "listener.name.clients.ssl.keystore.location"
        entry = ConfigEntry(name, path, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        for altered in admin.incremental_alter_configs([resource]).values():
            altered.result(DEADLINE_S)

    alter(str(cluster.key_file("another.pem", another)))
    until(lambda: certificate_of(cluster, node.port) == another.der)
    with pytest.raises(confluent_kafka.KafkaException, match="cannot be read"):
        alter(str(cluster.directory / "missing.pem"))
    assert certificate_of(cluster, node.port) == another.der


def test_secrets_appear_in_no_log_description_or_metric(cluster: TlsCluster) -> None:
    properties = cluster.directory / "client.properties"
    lines = [f"{key}={value}\n" for key, value in cluster.client_properties(cluster.alice).items()]
    properties.write_text("".join(lines))
    described = run_ottla(
        *("configs", "--bootstrap-server", cluster.nodes[1].bootstrap, "--command-config", str(properties)),
        *("--describe", "--entity-type", "brokers", "--entity-name", "2", "--all"),
    )
    assert "ssl.key.password" in described.stdout
    texts = [described.stdout, described.stderr, *(node.log_text for node in cluster.nodes)]
    texts += [node.http(path)[1] for node in cluster.nodes for path in ("/metrics", "/health/live", "/health/ready")]
    for text in texts:
        for secret in (KEY_PASSWORD, STORE_PASSWORD, "sesame", "PRIVATE KEY"):
            assert secret not in text
    assert "Traceback" not in "".join(texts)
