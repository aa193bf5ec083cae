"""Client libraries at a secure node: TLS with SCRAM-SHA-512, client certificates, ACLs; tokens with Java.

Each program gets its settings in environment variables SECURE_…: SCRAM, MTLS and OAUTH (addresses), USER, PASSWORD, CA,
CERT, KEY, KEYSTORE, TOKEN, EXPIRED_TOKEN (files). It writes to the topic `allowed` and reads it in a group, tries the
topic `forbidden` and a wrong password, does the same with a certificate, and prints a line for each. The Java program
then uses a delegation token and OAuth tokens. The user and the certificate have exactly the rights for the topic and
the groups.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import jwt
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from tests.support.certificates import CertificateAuthority
from tests.support.kafka.apache_kafka import REPOSITORY, free_ports, java_command, run_tool, unavailable_reason
from tests.support.processes.ottla_node import OttlaNode, clean_environment

pytestmark = pytest.mark.interop

CLIENTS = Path(__file__).parent / "clients"
BUILD = REPOSITORY / "build" / "secure-clients"
USER, PASSWORD, CERTIFICATE_USER = "alice", "secret of alice", "service"
PROGRAM_TIMEOUT_S = 120
EXPECTED = [
    "scram: wrote and read",
    "forbidden topic: not authorized",
    "wrong password: not authenticated",
    "certificate: wrote",
    "certificate, forbidden topic: not authorized",
]
EXPECTED_OF_OAUTH = [
    "OAuth: wrote",
    "OAuth, forbidden topic: not authorized",
    "OAuth, expired token: not authenticated",
]
EXPECTED_OF_TOKENS = [
    "token: wrote",
    "token, forbidden topic: not authorized",
    "token: listed",
    "expired token: not authenticated",
]


class SecureNode(OttlaNode):
    """A node with listeners for SCRAM over TLS and for certificates, and one on which the test is a super user."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.scram_port, self.certificate_port, self.oauth_port = free_ports(3)
        directory.mkdir(parents=True, exist_ok=True)
        authority = CertificateAuthority()
        (directory / "ca.pem").write_text(authority.pem)
        own = authority.issue("node", "127.0.0.1").write_pem(directory / "node.pem")
        client = authority.issue(CERTIFICATE_USER, organization="Ottla")
        client.write_pem(directory / "client.pem")
        (directory / "client.crt").write_text(client.chain_pem)
        (directory / "client.key").write_text(client.key_pem())
        places = {"PLAINTEXT": self.port, "SCRAM": self.scram_port, "CERTIFICATE": self.certificate_port}
        places |= {"OAUTH": self.oauth_port, "CONTROLLER": self.controller_port}
        self.settings = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in places.items()),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SCRAM:SASL_SSL,CERTIFICATE:SSL,OAUTH:SASL_SSL,"
            "CONTROLLER:PLAINTEXT",
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.oauth.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self._write_tokens().as_uri(),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.certificate.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+).*$/$1/",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(own),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(directory / "ca.pem"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "delegation.token.secret.key": "secret of tokens",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
        }

    def _write_tokens(self) -> Path:
        """Write a valid and an expired token of the user, and return the file of the key that verifies them."""
        key, now_s = ec.generate_private_key(ec.SECP256R1()), int(time.time())
        for name, start_s in (("token", now_s), ("expired", now_s - 7200)):
            claims = {"sub": USER, "iat": start_s, "exp": start_s + 3600, "scope": "kafka"}
            token = jwt.encode(claims, key, algorithm="ES256", headers={"kid": "1"})
            (self.directory / f"{name}.jwt").write_text(token)
        keys = self.directory / "keys.json"
        public = json.loads(ECAlgorithm.to_jwk(key.public_key()))
        keys.write_text(json.dumps({"keys": [{**public, "kid": "1", "alg": "ES256"}]}))
        return keys

    @property
    def client_environment(self) -> Mapping[str, str]:
        settings = {
            "SCRAM": f"127.0.0.1:{self.scram_port}",
            "MTLS": f"127.0.0.1:{self.certificate_port}",
            "OAUTH": f"127.0.0.1:{self.oauth_port}",
            "TOKEN": str(self.directory / "token.jwt"),
            "EXPIRED_TOKEN": str(self.directory / "expired.jwt"),
            "USER": USER,
            "PASSWORD": PASSWORD,
            "CA": str(self.directory / "ca.pem"),
            "CERT": str(self.directory / "client.crt"),
            "KEY": str(self.directory / "client.key"),
            "KEYSTORE": str(self.directory / "client.pem"),
        }
        return {f"SECURE_{name}": value for name, value in settings.items()}


def right(principal: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if kind is ResourceType.GROUP else ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, f"User:{principal}", "*", operation, AclPermissionType.ALLOW)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    running = SecureNode(tmp_path_factory.mktemp("secure-clients"))
    with running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        information = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        credential = UserScramCredentialUpsertion(USER, information, PASSWORD.encode())
        rights = [
            right(principal, *rest)
            for principal in (USER, CERTIFICATE_USER)
            for rest in (
                (ResourceType.TOPIC, "allowed", AclOperation.WRITE),
                (ResourceType.TOPIC, "allowed", AclOperation.READ),
                (ResourceType.GROUP, "g-", AclOperation.READ),
            )
        ]
        for done in (
            *admin.create_topics([NewTopic(name, 1, 1) for name in ("allowed", "forbidden")]).values(),
            *admin.alter_user_scram_credentials([credential]).values(),
            *admin.create_acls(rights).values(),
        ):
            done.result(30)
        yield running


def output(node: SecureNode, command: list[str]) -> list[str]:
    done = subprocess.run(
        command,
        env={**clean_environment(), **node.client_environment},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("library", ["librdkafka", "aiokafka"])
def test_python_library(library: str, node: SecureNode) -> None:
    module = "tests.interop.security.clients.python_clients"
    assert output(node, [sys.executable, "-m", module, library]) == EXPECTED


def test_java(node: SecureNode) -> None:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    program = java_command(str(CLIENTS / "SecureClient.java"), heap="192m")
    assert output(node, program) == EXPECTED + EXPECTED_OF_TOKENS + EXPECTED_OF_OAUTH


def test_franz_go(node: SecureNode) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not on PATH")
    BUILD.mkdir(parents=True, exist_ok=True)
    program = str(BUILD / "franz-go")
    subprocess.run(["go", "build", "-buildvcs=false", "-o", program, "."], cwd=CLIENTS / "go", check=True)
    assert output(node, [program]) == EXPECTED


def test_kafkajs(node: SecureNode) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not on PATH")
    directory = BUILD / "kafkajs"
    shutil.copytree(CLIENTS / "kafkajs", directory, dirs_exist_ok=True)
    install = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run(install, cwd=directory, check=True, capture_output=True)
    assert output(node, ["node", str(directory / "main.js")]) == EXPECTED


def test_kafkas_tools_manage_credentials_and_tokens(node: SecureNode) -> None:
    """Apache Kafka's kafka-configs and kafka-delegation-tokens."""
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    bob = ("--bootstrap-server", node.bootstrap, "--entity-type", "users", "--entity-name", "bob")
    credential = "SCRAM-SHA-512=[iterations=8192,password=secret of bob]"
    added = run_tool("kafka.admin.ConfigCommand", *bob, "--alter", "--add-config", credential)
    assert "Completed updating config for user bob." in added
    described = run_tool("kafka.admin.ConfigCommand", *bob, "--describe")
    assert "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-512=iterations=8192" in described
    settings = node.directory / "bob.properties"
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="bob" password="secret of bob";'
    settings.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={node.directory / 'ca.pem'}\nsasl.jaas.config={login}\n"
    )
    tokens = ("org.apache.kafka.tools.DelegationTokenCommand", "--bootstrap-server", f"127.0.0.1:{node.scram_port}")
    login_settings = ("--command-config", str(settings))
    created = run_tool(*tokens, *login_settings, "--create", "--max-life-time-period", "-1")
    token_id = re.search(r"^(\S{20,})\s+\S+\s+User:bob\s", created, re.MULTILINE)
    assert token_id is not None, created
    assert token_id[1] in run_tool(*tokens, *login_settings, "--describe", "--owner-principal", "User:bob")


def test_refused_requests_wrote_nothing(node: SecureNode) -> None:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "none"})
    try:
        assert consumer.get_watermark_offsets(TopicPartition("forbidden", 0), timeout=30) == (0, 0)
    finally:
        consumer.close()
    assert PASSWORD not in node.log_text
    assert os.fspath(node.directory / "client.key") not in node.log_text
