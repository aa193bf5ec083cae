"""PLAIN, SCRAM and delegation tokens with real clients, on a node with listeners with and without SASL."""

import asyncio
import base64
import json
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import jwt
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from broker.client import Client
from broker.client_config import ClientConfig, ClientError
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from tests.support.kafka.apache_kafka import free_ports
from tests.support.processes.ottla_node import OttlaNode

pytestmark = pytest.mark.integration

DEADLINE_S = 30
PASSWORD = 'pass word="1"'
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class SaslNode(OttlaNode):
    """A node with a PLAINTEXT listener and one of SASL_PLAINTEXT."""

    def __init__(self, directory: Any) -> None:
        super().__init__(directory)
        (self.sasl_port,) = free_ports(1)
        quoted = PASSWORD.replace('"', '\\"')
        self.settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CLIENT://127.0.0.1:{self.sasl_port},"
            f"CONTROLLER://127.0.0.1:{self.controller_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listener.name.client.sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
            "listener.name.client.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self._key_set().as_uri(),
            "listener.name.client.oauthbearer.sasl.oauthbearer.expected.audience": "ottla",
            "listener.name.client.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="{quoted}";',
            "listener.name.client.scram-sha-512.connections.max.reauth.ms": "3000",
            "delegation.token.secret.key": "token-secret",
        }

    def _key_set(self) -> Path:
        """Write a key set with the public half of a new key."""
        self.signing_key = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(ECAlgorithm.to_jwk(self.signing_key.public_key()))
        path = self.directory / "keys.json"
        path.write_text(json.dumps({"keys": [{**public, "kid": "1", "use": "sig", "alg": "ES256"}]}))
        return path

    def with_token(self, audience: str, lifetime_s: int = 60) -> dict[str, Any]:
        """Return settings of librdkafka with a callback that makes tokens."""

        def token(_config: str) -> tuple[str, float]:
            now_s = int(time.time())
            claims = {"sub": "carol", "aud": audience, "iat": now_s, "exp": now_s + lifetime_s}
            made = jwt.encode(claims, self.signing_key, algorithm="ES256", headers={"kid": "1"})
            return made, float(now_s + lifetime_s)

        config = self.librdkafka("OAUTHBEARER")
        return {name: config[name] for name in config if name not in ("sasl.username", "sasl.password")} | {
            "oauth_cb": token
        }

    def librdkafka(self, mechanism: str, user: str = "alice", password: str = PASSWORD) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.sasl_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslNode]:
    running = SaslNode(tmp_path_factory.mktemp("sasl"))
    with running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for made in admin.create_topics([NewTopic("sasl", 1, 1)]).values():
            made.result(DEADLINE_S)
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            information = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion("alice", information, PASSWORD.encode())
            for altered in admin.alter_user_scram_credentials([change]).values():
                altered.result(DEADLINE_S)
        yield running


def connect(node: SaslNode, mechanism: str, user: str, password: str, *, is_token: bool = False) -> Client:
    quoted = password.replace('"', '\\"')
    options = f'username="{user}" password="{quoted}"' + (' tokenauth="true"' if is_token else "")
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"org.apache.kafka.common.security.scram.ScramLoginModule required {options};",
    }
    return Client(ClientConfig.parse(f"127.0.0.1:{node.sasl_port}", properties))


def produce(config: dict[str, Any]) -> str | None:
    """Produce one record; return the error of its delivery or of the authentication."""
    errors: list[str] = []
    outcome: list[str | None] = []
    producer = confluent_kafka.Producer(
        {**config, "message.timeout.ms": 10_000, "error_cb": lambda error: errors.append(error.str())}
    )
    producer.produce("sasl", b"x", on_delivery=lambda error, _: outcome.append(error and error.str()))
    while not outcome and not any("uthentication" in error for error in errors):
        producer.poll(0.05)
    if outcome:
        return outcome[0]
    producer.purge()
    return next(error for error in errors if "uthentication" in error)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in(node: SaslNode, mechanism: str) -> None:
    assert produce(node.librdkafka(mechanism)) is None


def test_librdkafka_logs_in_with_an_oauth_token(node: SaslNode) -> None:
    assert produce(node.with_token("ottla")) is None


def test_token_for_another_audience_is_refused(node: SaslNode) -> None:
    error = produce(node.with_token("other"))
    assert error is not None
    assert "invalid_token" in error
    assert 'refused an OAuth token reason="The token is for another audience."' in node.log_text


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_wrong_password_is_refused(node: SaslNode, mechanism: str) -> None:
    error = produce(node.librdkafka(mechanism, password="wrong"))
    assert error is not None
    assert "uthentication" in error
    assert PASSWORD not in node.log_text


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_reads_after_its_login(node: SaslNode, mechanism: str) -> None:
    assert produce(node.librdkafka("PLAIN")) is None

    async def read() -> bytes:
        consumer = aiokafka.AIOKafkaConsumer(
            "sasl",
            bootstrap_servers=f"127.0.0.1:{node.sasl_port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=PASSWORD,
            auto_offset_reset="earliest",
        )
        async with consumer:
            record = await asyncio.wait_for(consumer.getone(), DEADLINE_S)
            return bytes(record.value)

    assert asyncio.run(read()) == b"x"


def test_token_logs_its_owner_in_until_it_is_expired(node: SaslNode) -> None:
    with connect(node, "SCRAM-SHA-256", "alice", PASSWORD) as client:
        response = client.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), CreateDelegationTokenResponse)
    assert response.error_code == 0
    assert response.principal_name == "alice"
    secret = base64.b64encode(response.hmac).decode()
    with connect(node, "SCRAM-SHA-256", response.token_id, secret, is_token=True) as client:
        again = client.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), CreateDelegationTokenResponse)
    assert again.error_code != 0
    with (
        connect(node, "SCRAM-SHA-256", response.token_id, "wrong", is_token=True) as client,
        pytest.raises(ClientError),
    ):
        client.any()


def test_oversized_frame_ends_an_unauthenticated_connection(node: SaslNode) -> None:
    with socket.create_connection(("127.0.0.1", node.sasl_port), DEADLINE_S) as connection:
        connection.sendall(struct.pack(">i", 1_000_000))
        assert connection.recv(1) == b""


def test_deleted_credential_ends_logins(node: SaslNode) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    information = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    for change in (
        UserScramCredentialUpsertion("bob", information, b"bob"),
        UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256),
    ):
        for altered in admin.alter_user_scram_credentials([change]).values():
            altered.result(DEADLINE_S)
        is_stored = isinstance(change, UserScramCredentialUpsertion)
        error = produce(node.librdkafka("SCRAM-SHA-256", "bob", "bob"))
        assert (error is None) == is_stored


def test_secrets_appear_in_no_log_description_or_metric(node: SaslNode) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    resources = [
        ConfigResource(ConfigResource.Type.BROKER, "1"),
        ConfigResource(ConfigResource.Type.TOPIC, "sasl"),
    ]
    described = [
        f"{entry.name}={entry.value} {entry.synonyms}"
        for done in admin.describe_configs(resources).values()
        for entry in done.result(DEADLINE_S).values()
    ]
    assert any(line.startswith("delegation.token.secret.key=None") for line in described)
    texts = [*described, node.log_text, *(node.http(path)[1] for path in ("/metrics", "/health/live", "/health/ready"))]
    for secret in (PASSWORD, "token-secret", PASSWORD.replace('"', '\\"')):
        assert not [text for text in texts if secret in text]
    assert "Traceback" not in node.log_text
