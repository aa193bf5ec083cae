"""A combined node and a broker whose links to each other are SASL_SSL, and the blocking client."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from broker.client import AuthenticationRefused, Client, ClientConfig
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.records.batch import NO_LEADER_EPOCH
from protocol.records.builder import build_value_batch
from tests.support.certificates import CertificateAuthority
from tests.support.fakes.token_endpoint import TokenEndpoint
from tests.support.kafka.apache_kafka import free_ports, random_uuid_text
from tests.support.processes.broker_cluster import ClusterNode
from tests.support.processes.ottla_node import OttlaNode

pytestmark = pytest.mark.integration

SECRET = "sesame-node-5"
SESSION_MS = 4_000
"""Long enough for a busy machine: a login that comes late ends the connection. Brokers refuse a second login within one
second, as in Kafka.
"""

TOKEN_MS = 6_000
"""Life of a token. Half of it passes before the refresh, so that the next login finds the new token."""

HOSTS = ("localhost", "127.0.0.1")


def jaas(password: str = SECRET) -> str:
    users = f'user_node="{SECRET}"'
    return (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' username="node" password="{password}" {users};'
    )


class Access(NamedTuple):
    """A mechanism, settings of each listener by key below the mechanism, other settings, and those of clients."""

    mechanism: str
    of_listeners: Mapping[str, str]
    settings: Mapping[str, str]
    client: Mapping[str, str]


PLAIN = Access(
    "PLAIN", {"sasl.jaas.config": jaas()}, {"connections.max.reauth.ms": str(SESSION_MS)}, {"sasl.jaas.config": jaas()}
)


class Provider:
    """An identity provider: gives tokens that live for TOKEN_MS, for the credentials of the nodes."""

    def __init__(self, directory: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._keys = directory / "keys.json"
        public = json.loads(ECAlgorithm.to_jwk(self._key.public_key()))
        self._keys.write_text(json.dumps({"keys": [{**public, "kid": "1", "alg": "ES256"}]}))
        self.endpoint = TokenEndpoint(self._answer)

    def _answer(self) -> tuple[int, bytes]:
        now_s = time.time()
        claims = {"sub": "node", "iat": now_s, "exp": now_s + TOKEN_MS / 1000}
        token = jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": "1"})
        return 200, json.dumps({"access_token": token}).encode()

    @property
    def access(self) -> Access:
        package = "org.apache.kafka.common.security.oauthbearer"
        login = {
            "sasl.jaas.config": f'{package}.OAuthBearerLoginModule required clientId="n" clientSecret="{SECRET}";',
            "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
        }
        settings = {
            "sasl.oauthbearer.token.endpoint.url": self.endpoint.url,
            "sasl.login.refresh.window.factor": "0.5",
            "sasl.login.refresh.window.jitter": "0.0",
            "sasl.login.refresh.min.period.seconds": "0",
            "sasl.login.refresh.buffer.seconds": "0",
        }
        keys = {"sasl.oauthbearer.jwks.endpoint.url": self._keys.as_uri()}
        return Access("OAUTHBEARER", login, settings | keys, login | settings)


class SaslPair:
    """Node 1 is controller and broker, node 2 a broker."""

    def __init__(self, directory: Path, access: Access) -> None:
        self._access = access
        authority, cluster_id = CertificateAuthority(), random_uuid_text()
        self.trust = directory / "authority.pem"
        self.trust.write_text(authority.pem)
        keys = authority.issue("nodes", *HOSTS).write_pem(directory / "nodes.pem")
        self.nodes = [ClusterNode(directory / f"node-{id_}", id_, cluster_id, {}) for id_ in (1, 2)]
        first = self.nodes[0]
        for node in self.nodes:
            node.settings |= {
                "process.roles": "broker,controller" if node is first else "broker",
                "controller.quorum.voters": f"1@127.0.0.1:{first.controller_port}",
                "broker.heartbeat.interval.ms": "2000",  # a response that comes later than this ends the connection
                "listeners": self._listeners(node, is_controller=node is first),
                "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,INSIDE:SASL_SSL,CONTROLLER:SASL_SSL",
                "inter.broker.listener.name": "INSIDE",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(keys),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.trust),
                "sasl.enabled.mechanisms": access.mechanism,
                "sasl.mechanism.inter.broker.protocol": access.mechanism,
                "sasl.mechanism.controller.protocol": access.mechanism,
                **access.settings,
                **{
                    f"listener.name.{name}.{access.mechanism.lower()}.{key}": value
                    for name in ("clients", "inside", "controller")
                    for key, value in access.of_listeners.items()
                },
            }

    def _listeners(self, node: ClusterNode, *, is_controller: bool) -> str:
        (inside,) = free_ports(1)
        controller = f",CONTROLLER://127.0.0.1:{node.controller_port}" if is_controller else ""
        return f"CLIENTS://127.0.0.1:{node.port},INSIDE://127.0.0.1:{inside}{controller}"

    def client(self, more: Mapping[str, str] | None = None) -> Client:
        access = self._access
        properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": access.mechanism}
        return Client(ClientConfig.parse(self.nodes[1].bootstrap, {**properties, **access.client, **(more or {})}))


@contextlib.contextmanager
def running_pair(directory: Path, access: Access) -> Iterator[SaslPair]:
    cluster = SaslPair(directory, access)
    with contextlib.ExitStack() as running:
        for node in cluster.nodes:
            running.callback(node.kill)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(OttlaNode.start, cluster.nodes))
        yield cluster


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslPair]:
    with running_pair(tmp_path_factory.mktemp("sasl"), PLAIN) as running:
        yield running


def test_links_and_clients_log_in_with_tokens_that_they_refresh(tmp_path: Path) -> None:
    provider = Provider(tmp_path)
    with provider.endpoint, running_pair(tmp_path, provider.access) as pair:
        produce_for(pair, 1.2 * TOKEN_MS)
        assert {*provider.endpoint.bodies} == {b"grant_type=client_credentials"}
        assert len(provider.endpoint.bodies) >= 2 * (len(pair.nodes) + 1)


def test_replicated_produce_outlives_sessions_of_all_links(pair: SaslPair) -> None:
    produce_for(pair, 1.2 * SESSION_MS)


def produce_for(pair: SaslPair, duration_ms: float) -> None:
    """Acks of all replicas show that the follower fetches; the client and the nodes log in again."""
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=2)
    starts = [len(node.log_text) for node in pair.nodes]  # a node that starts first cannot reach the other yet
    with pair.client() as client:
        created = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse)
        assert [each.error_code for each in created.topics] == [0]
        leader = client.retrying(lambda: client.leaders(["t"]))["t"].partitions[0].leader_id
        end, offset = time.monotonic() + duration_ms / 1000, 0
        while time.monotonic() < end:
            batch = build_value_batch([b"v"], 0, base_offset=0, leader_epoch=NO_LEADER_EPOCH)
            data = TopicProduceData(name="t", partition_data=[PartitionProduceData(0, batch)])
            request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data])
            answer = client.node(leader).call(request, ProduceResponse, highest=12)
            (partition,) = answer.responses[0].partition_responses
            assert (partition.error_code, partition.base_offset) == (0, offset)
            offset += 1
    for node, start in zip(pair.nodes, starts, strict=True):
        assert "connection to a node ended" not in node.log_text[start:]
        assert SECRET not in node.log_text


def test_wrong_password_is_refused_with_the_servers_message(pair: SaslPair) -> None:
    with pair.client({"sasl.jaas.config": jaas("wrong-7")}) as client, pytest.raises(AuthenticationRefused) as caught:
        client.retrying(client.metadata)
    assert "failed the login with PLAIN: Authentication failed: Invalid username or password." in str(caught.value)
    assert "wrong-7" not in str(caught.value)
