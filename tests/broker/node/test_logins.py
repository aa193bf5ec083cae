"""Logins of a node at the listeners of others: precedence, and settings that are refused."""

from typing import cast

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.net.peer import Connect, SaslConnect
from broker.node.security.logins import NodeLogins

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="{}" password="sesame-4";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="sesame-4";'
RLMM = "rlmm.config.remote.log.metadata."
CONNECT = cast(Connect, object())


def logins(**changed: str) -> NodeLogins:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "log.dirs": "/data",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CLIENTS://127.0.0.1:9092,INSIDE://127.0.0.1:9094,CONTROLLER://127.0.0.1:9093",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INSIDE:SASL_PLAINTEXT,CONTROLLER:SASL_SSL",
        "inter.broker.listener.name": "INSIDE",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.inside.scram-sha-256.sasl.jaas.config": SCRAM.format("inside"),
        "listener.name.inside.plain.sasl.jaas.config": PLAIN.format("other"),
        "listener.name.controller.plain.sasl.jaas.config": PLAIN.format("controller"),
    }
    return NodeLogins(BrokerConfig(settings | {name.replace("__", "."): value for name, value in changed.items()}))


def first_message(connect: Connect) -> bytes:
    assert isinstance(connect, SaslConnect)
    return connect.login.begin().first()


def test_login_has_the_mechanism_and_credentials_of_the_listener() -> None:
    found = logins()
    assert first_message(found.connect("INSIDE", CONNECT)).startswith(b"n,,n=inside,r=")
    assert first_message(found.connect("CONTROLLER", CONNECT)) == b"\0controller\0sesame-4"
    assert found.connect("CLIENTS", CONNECT) is CONNECT


def test_clients_of_remote_metadata_have_settings_of_their_own() -> None:
    assert first_message(logins().connect_for_remote_metadata("INSIDE", CONNECT)).startswith(b"n,,n=inside,r=")
    own = {
        f"{RLMM}common.client.sasl.mechanism": "PLAIN",
        f"{RLMM}common.client.sasl.jaas.config": PLAIN.format("common"),
    }
    assert first_message(logins(**own).connect_for_remote_metadata("INSIDE", CONNECT)) == b"\0common\0sesame-4"
    own[f"{RLMM}consumer.sasl.jaas.config"] = PLAIN.format("reader")
    assert first_message(logins(**own).connect_for_remote_metadata("INSIDE", CONNECT)) == b"\0reader\0sesame-4"


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}, "sasl.mechanism.inter.broker.protocol=GSSAPI"),
        (
            {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512", "sasl.jaas.config": SCRAM.format("x")},
            "listener.name.inside.scram-sha-512.sasl.jaas.config is not set",
        ),
        ({f"{RLMM}producer.sasl.jaas.config": "sesame-4"}, f"{RLMM}producer.sasl.jaas.config is not a JAAS entry"),
    ],
)
def test_unusable_settings_are_refused_by_key(changed: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        logins(**changed).connect_for_remote_metadata("INSIDE", CONNECT)
    assert caught.value.sentence.startswith(key)
    assert "sesame" not in caught.value.sentence
