"""Node ids from host names, secrets in files, and brokers with a ZooKeeper of their own."""

from pathlib import Path

import pytest

from broker.cli.node.container import prepare
from broker.cli.node.image_variables import with_node_id_of_host, with_secret_files, without_own_zookeeper
from broker.cli.shared.failure import CommandFailed
from broker.config.load import load_config


@pytest.mark.parametrize(("base", "host", "node_id"), [("0", "ottla-0", "0"), ("100", "ottla-broker-12", "112")])
def test_node_id_is_the_base_plus_the_ordinal_of_the_host(base: str, host: str, node_id: str) -> None:
    environment = with_node_id_of_host({"OTTLA_NODE_ID_BASE": base, "HOSTNAME": host})
    assert environment == {"HOSTNAME": host, "KAFKA_NODE_ID": node_id}


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"HOSTNAME": "ottla"}, "host name 'ottla' does not end in -NUMBER"),
        ({}, "host name '' does not end in -NUMBER"),
        ({"HOSTNAME": "ottla-1", "KAFKA_NODE_ID": "1"}, "both set"),
        ({"HOSTNAME": "ottla-1", "OTTLA_NODE_ID_BASE": "-1"}, "'-1' but must be a whole number"),
    ],
)
def test_unusable_node_id_base_is_refused(variables: dict[str, str], problem: str) -> None:
    with pytest.raises(CommandFailed, match=problem):
        with_node_id_of_host({"OTTLA_NODE_ID_BASE": "0", **variables})


def test_node_id_of_the_environment_is_kept_without_a_base() -> None:
    environ = {"KAFKA_NODE_ID": "7", "HOSTNAME": "ottla-1"}
    assert with_node_id_of_host(environ) == environ


def test_store_names_and_credentials_become_locations_and_passwords() -> None:
    files = {"/etc/kafka/secrets/keystore_creds": "one\n", "/etc/kafka/secrets/key_creds": "two\n"}
    environ = {
        "KAFKA_SSL_KEYSTORE_FILENAME": "kafka01.keystore.jks",
        "KAFKA_SSL_KEYSTORE_CREDENTIALS": "keystore_creds",
        "KAFKA_SSL_KEY_CREDENTIALS": "key_creds",
        "KAFKA_SSL_TRUSTSTORE_FILENAME": "kafka.truststore.jks",
        "KAFKA_SSL_CLIENT_AUTH": "required",
    }
    assert with_secret_files(environ, files.__getitem__) == {
        "KAFKA_SSL_KEYSTORE_LOCATION": "/etc/kafka/secrets/kafka01.keystore.jks",
        "KAFKA_SSL_KEYSTORE_PASSWORD": "one",
        "KAFKA_SSL_KEY_PASSWORD": "two",
        "KAFKA_SSL_TRUSTSTORE_LOCATION": "/etc/kafka/secrets/kafka.truststore.jks",
        "KAFKA_SSL_CLIENT_AUTH": "required",
    }


def test_unreadable_credentials_are_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(
        CommandFailed, match="KAFKA_SSL_KEY_CREDENTIALS: /etc/kafka/secrets/no-such-file cannot be read"
    ):
        prepare({"KAFKA_SSL_KEY_CREDENTIALS": "no-such-file"}, tmp_path / "absent")


def test_broker_with_its_own_zookeeper_becomes_a_combined_node(tmp_path: Path) -> None:
    """Start with the variables that Testcontainers' Python module sets unless `with_kraft` is called."""
    environ = {
        "KAFKA_BROKER_ID": "1",
        "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181",
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768,BROKER://172.17.0.2:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    }
    config, warnings = load_config(None, (), prepare(environ, tmp_path / "absent").environment)
    assert warnings == []
    assert config.node_id == 1
    assert [voter.id for voter in config.voters] == [1]


@pytest.mark.parametrize(
    "environ",
    [
        {"KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181"},
        {"KAFKA_ZOOKEEPER_CONNECT": "localhost:2181", "KAFKA_PROCESS_ROLES": "broker"},
        {},
    ],
)
def test_other_environments_keep_their_zookeeper_setting(environ: dict[str, str]) -> None:
    assert without_own_zookeeper(environ) == environ
