"""`ottla configs` for SCRAM and `ottla delegation-tokens` at Apache Kafka and at Ottla, beside Kafka's own tools."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.kafka.apache_kafka import apache_kafka, run_tool, unavailable_reason
from tests.support.processes.ottla_node import OttlaNode, run_ottla

pytestmark = pytest.mark.interop

_MODULE = "org.apache.kafka.common.security.{}.{}LoginModule required"
_PLAIN, _SCRAM = _MODULE.format("plain", "Plain"), _MODULE.format("scram", "Scram")
_ADMIN = 'username="admin" password="secret of admin"'
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f'{_PLAIN} {_ADMIN} user_admin="secret of admin";',
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f"{_SCRAM};",
    "delegation.token.secret.key": "secret of tokens",
}
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
CONFIGS = "kafka.admin.ConfigCommand"


@contextmanager
def side(name: str, directory: Path) -> Iterator[str]:
    """Run one node of Apache Kafka or of Ottla, with SASL; yield the bootstrap address."""
    if name == "kafka":
        with apache_kafka(directory, SETTINGS, heap="256m") as bootstrap:
            yield bootstrap
    else:
        with OttlaNode(directory, SETTINGS) as node:
            yield node.bootstrap


def client_file(path: Path, mechanism: str, login: str) -> str:
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={login};\n", encoding="utf-8"
    )
    return str(path)


def login(bootstrap: str, file: str) -> tuple[str, ...]:
    return ("--bootstrap-server", bootstrap, "--command-config", file)


def ottla(*arguments: str) -> str:
    done = run_ottla(*arguments)
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.parametrize("name", ["kafka", "ottla"])
def test_tools_manage_credentials_and_tokens(name: str, tmp_path: Path) -> None:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with side(name, tmp_path / name) as bootstrap:
        admin = login(bootstrap, client_file(tmp_path / "admin.properties", "PLAIN", f"{_PLAIN} {_ADMIN}"))
        bob = ("--entity-type", "users", "--entity-name", "bob")
        alter = ("configs", *admin, *bob, "--alter")
        credential = "SCRAM-SHA-512=[iterations=8192,password=secret of bob]"
        assert ottla(*alter, "--add-config", credential) == "Completed updating config for user bob.\n"
        ottla(*alter, "--add-config", "SCRAM-SHA-256=[password=x]")
        ottla(*alter, "--delete-config", "SCRAM-SHA-256")
        described = "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-512=iterations=8192"
        assert ottla("configs", *admin, *bob, "--describe").strip() == described
        assert described in run_tool(CONFIGS, *admin, *bob, "--describe")

        scram = f'{_SCRAM} username="bob" password="secret of bob"'
        as_bob = login(bootstrap, client_file(tmp_path / "bob.properties", "SCRAM-SHA-512", scram))
        renewer = ("--renewer-principal", "User:admin")
        made = json.loads(
            ottla("delegation-tokens", *as_bob, "--create", "--max-life-time-period", "-1", *renewer, "--json")
        )
        assert (made["owner"], made["requester"]) == ("User:bob", "User:bob")
        hmac = ("--hmac", made["hmac"])
        renewed = ottla("delegation-tokens", *admin, "--renew", *hmac, "--renew-time-period", "3600000", "--json")
        assert json.loads(renewed)["expiryTimestampMs"] < made["expiryTimestampMs"]
        ours = ottla("delegation-tokens", *as_bob, "--describe", "--owner-principal", "User:bob")
        theirs = run_tool(TOKENS, *as_bob, "--describe", "--owner-principal", "User:bob")
        assert made["tokenId"] in ours
        assert ours.split() == theirs[theirs.index("Total number") :].split()
        token = f'{_SCRAM} username="{made["tokenId"]}" password="{made["hmac"]}" tokenauth="true"'
        with_token = login(bootstrap, client_file(tmp_path / "token.properties", "SCRAM-SHA-512", token))
        assert ottla("topics", *with_token, "--list") == ""
        ottla("delegation-tokens", *admin, "--expire", *hmac, "--expiry-time-period", "-1")
        refused = run_ottla("topics", *with_token, "--list", check=False)
        assert refused.returncode == 1
        assert refused.stderr.count("\n") == 1
