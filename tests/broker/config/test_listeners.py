"""The listener keys, with the decisions of Apache Kafka 4.2."""

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.config.load import parse_config
from broker.config.quorum_addresses import ConfiguredVoter, HostPort

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}
BROKER = {
    "process.roles": "broker",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "2@h:9093",
}
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "2",
    "listeners": "CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "2@h:9093",
}
THREE_NAMES = "FOO:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"


def combined(**changes: str) -> BrokerConfig:
    return parse_config(COMBINED | {name.replace("_", "."): value for name, value in changes.items()})


def test_combined_node_binds_client_and_controller_listeners() -> None:
    config = combined()
    assert [str(listener) for listener in config.client_listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert [str(listener) for listener in config.controller_listeners] == ["CONTROLLER://127.0.0.1:9093"]
    assert config.advertised_listeners == config.client_listeners
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.voters == (ConfiguredVoter(1, HostPort("127.0.0.1", 9093)),)
    assert config.controller_listeners[0].protocol == "PLAINTEXT"


def test_broker_does_not_bind_controller_listener() -> None:
    config = parse_config(BROKER)
    assert config.controller_listeners == ()
    assert config.controller_listener_names == ("CONTROLLER",)
    assert (config.is_broker, config.is_controller) == (True, False)


def test_controller_only_node_advertises_nothing() -> None:
    config = parse_config(CONTROLLER)
    assert config.client_listeners == ()
    assert config.advertised_listeners == ()


@pytest.mark.parametrize(
    "listeners",
    [
        "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "PLAINTEXT://:9092,CONTROLLER://:9093",
        "PLAINTEXT://[::1]:9092,CONTROLLER://[::1]:9093",
        "plaintext://127.0.0.1:9092,controller://:9093",
    ],
)
def test_valid_listeners_are_accepted(listeners: str) -> None:
    config = combined(listeners=listeners)
    assert len(config.client_listeners) == len(config.controller_listeners) == 1


def test_one_port_may_serve_both_ip_versions() -> None:
    listeners = "PLAINTEXT://127.0.0.1:9092,FOO://[::1]:9092,CONTROLLER://:9093"
    config = combined(listeners=listeners, listener_security_protocol_map=THREE_NAMES)
    assert [listener.host for listener in config.client_listeners] == ["127.0.0.1", "::1"]


def test_controller_endpoint_is_the_advertised_listener_else_the_bound_one() -> None:
    bound = {"listeners": "PLAINTEXT://h:9092,CONTROLLER://0.0.0.0:9093", "advertised_listeners": "PLAINTEXT://h:9092"}
    apart = {**bound, "advertised_listeners": "PLAINTEXT://h:9092,CONTROLLER://me:19093"}
    assert [str(each) for each in combined(**bound).advertised_controller_listeners] == ["CONTROLLER://0.0.0.0:9093"]
    assert [str(each) for each in combined(**apart).advertised_controller_listeners] == ["CONTROLLER://me:19093"]
    assert [str(each) for each in combined(**apart).controller_listeners] == ["CONTROLLER://0.0.0.0:9093"]


def test_broker_does_not_advertise_controller_listeners() -> None:
    config = combined(advertised_listeners="PLAINTEXT://h:9092,CONTROLLER://h:9093")
    assert [str(listener) for listener in config.advertised_listeners] == ["PLAINTEXT://h:9092"]


def test_last_entry_of_a_name_in_the_protocol_map_wins() -> None:
    config = combined(listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_SSL")
    assert config.client_listeners[0].protocol == "SASL_SSL"


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"process.roles": ""}, "process.roles"),
        ({"process.roles": "broker,zookeeper"}, "process.roles"),
        ({"process.roles": "broker,broker"}, "listeners"),
        ({"node.id": "-1"}, "node.id"),
        ({"node.id": "x"}, "node.id"),
        ({"broker.id": "2"}, "broker.id"),
        ({"listeners": ""}, "listeners"),
        ({"listeners": "PLAINTEXT//x"}, "listeners"),
        ({"listeners": "PLAINTEXT://x:99999,CONTROLLER://:9093"}, "listeners"),
        ({"listeners": "PLAINTEXT://:9092"}, "controller.listener.names"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"}, "listeners"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"}, "advertised.listeners"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2,CONTROLLER://:9093"}, "listeners"),
        ({"listeners": "FOO://:1,CONTROLLER://:9093"}, "listeners"),
        ({"advertised.listeners": ""}, "advertised.listeners"),
        ({"advertised.listeners": "CONTROLLER://h:9093"}, "advertised.listeners"),
        ({"advertised.listeners": "FOO://h:9092"}, "advertised.listeners"),
        ({"advertised.listeners": "SSL://h:9092"}, "advertised.listeners"),
        ({"advertised.listeners": "PLAINTEXT://h:9092,PLAINTEXT://i:9092"}, "advertised.listeners"),
        ({"listener.security.protocol.map": "FOO:PLAINTEXT"}, "listeners"),
        ({"listener.security.protocol.map": "FOO:BAR"}, "listener.security.protocol.map"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "listener.security.protocol.map"),
        ({"controller.listener.names": ""}, "controller.listener.names"),
        ({"controller.listener.names": "X"}, "listeners"),
        ({"controller.listener.names": "CONTROLLER,X"}, "controller.listener.names"),
        ({"inter.broker.listener.name": "X"}, "inter.broker.listener.name"),
        ({"inter.broker.listener.name": "CONTROLLER"}, "inter.broker.listener.name"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "inter.broker.listener.name",
        ),
        ({"security.inter.broker.protocol": "SSL"}, "inter.broker.listener.name"),
        ({"controller.quorum.voters": ""}, "controller.quorum.voters"),
        ({"controller.quorum.voters": "2@h:9093"}, "controller.quorum.voters"),
        ({"controller.quorum.voters": "junk"}, "controller.quorum.voters"),
        ({"controller.quorum.voters": "1@h:1,1@i:2"}, "controller.quorum.voters"),
        (
            {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "h"},
            "controller.quorum.bootstrap.servers",
        ),
        ({"early.start.listeners": "X"}, "early.start.listeners"),
    ],
)
def test_invalid_listener_combinations_are_refused(changes: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(COMBINED | changes)
    assert caught.value.key == key
    assert key in caught.value.sentence


@pytest.mark.parametrize(
    "settings",
    [
        BROKER | {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
        BROKER | {"node.id": "2"},
        CONTROLLER | {"listeners": "CONTROLLER://:9093,PLAINTEXT://:9092"},
        CONTROLLER | {"listeners": "PLAINTEXT://:9092"},
    ],
)
def test_node_with_one_role_opens_only_its_own_listeners(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        parse_config(settings)


def test_bootstrap_servers_replace_static_voters() -> None:
    config = combined(controller_quorum_voters="", controller_quorum_bootstrap_servers="h:9093,[::1]:9094")
    assert config.bootstrap_servers == (HostPort("h", 9093), HostPort("::1", 9094))
    assert config.voters == ()
