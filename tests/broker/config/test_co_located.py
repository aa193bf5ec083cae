"""Configurations of several brokers on one machine, derived from one."""

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.co_located import check_derivable, co_located_settings
from broker.config.errors import ConfigError
from broker.config.load import load_config

MACHINE = "host-7"
CLUSTER = {
    "process.roles": "broker,controller",
    "node.id": "100",
    "listeners": "INTERNAL://:19092,EXTERNAL://:9092,CONTROLLER://:9093",
    "advertised.listeners": "INTERNAL://a:19092,EXTERNAL://b:39092",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "a:9093,c:9093,d:9093",
    "log.dirs": "/disk-1,/disk-2",
    "metadata.log.dir": "/fast",
    "ottla.audit.log": "/var/log/audit.json",
}


def loaded(settings: dict[str, str]) -> BrokerConfig:
    return load_config(None, [f"{name}={value}" for name, value in settings.items()], {})[0]


def derived(settings: dict[str, str], index: int) -> BrokerConfig:
    """Return the whole configuration of a broker of the machine."""
    own = co_located_settings(loaded(settings), index, machine=MACHINE)
    return loaded({**settings, **own})


def test_first_broker_keeps_id_roles_and_ports() -> None:
    config = derived(CLUSTER, 0)
    assert (config.node_id, config.is_broker, config.is_controller) == (100, True, True)
    assert [listener.port for listener in config.client_listeners] == [19092, 9092]
    assert [listener.port for listener in config.controller_listeners] == [9093]
    assert [listener.port for listener in config.advertised_listeners] == [19092, 39092]


def test_further_brokers_have_higher_ids_and_ports_and_no_controller() -> None:
    config = derived(CLUSTER, 2)
    assert (config.node_id, config.is_broker, config.is_controller) == (102, True, False)
    assert [listener.port for listener in config.client_listeners] == [19112, 9112]
    assert [str(listener) for listener in config.advertised_listeners] == ["INTERNAL://a:19112", "EXTERNAL://b:39112"]
    assert config.controller_listener_names == ("CONTROLLER",)


@pytest.mark.parametrize(("given", "policy"), [({}, "batch"), ({"ottla.scheduling.policy": "inherit"}, "inherit")])
def test_scheduling_policy_is_batch_unless_configured(given: dict[str, str], policy: str) -> None:
    assert {derived({**CLUSTER, **given}, index).ottla_scheduling_policy for index in range(2)} == {policy}


def test_every_broker_has_its_own_files_and_http_port() -> None:
    configs = [derived(CLUSTER, index) for index in range(3)]
    assert [config.log_dirs for config in configs] == [
        (f"/disk-1/broker-{index}", f"/disk-2/broker-{index}") for index in range(3)
    ]
    assert [config.metadata_log_dir for config in configs] == ["/fast/broker-0", "/fast/broker-1", "/fast/broker-2"]
    assert len({config.ottla_audit_log for config in configs}) == 3
    assert [config.http_listener.port for config in configs if config.http_listener] == [9645, 9646, 9647]


def test_brokers_share_the_rack_of_their_machine() -> None:
    assert {derived(CLUSTER, index).broker_rack for index in range(3)} == {MACHINE}


def test_given_rack_wins() -> None:
    assert derived({**CLUSTER, "broker.rack": "row-4"}, 1).broker_rack == "row-4"


def test_machine_without_configuration_has_one_controller() -> None:
    first, second = (derived({}, index) for index in range(2))
    assert (first.node_id, first.is_controller) == (1, True)
    assert (second.node_id, second.is_controller) == (2, False)
    assert [voter.id for voter in second.voters] == [1]
    assert second.voters[0].address.port == first.controller_listeners[0].port


def test_older_name_of_the_node_id_is_derived_too() -> None:
    settings = {name: value for name, value in CLUSTER.items() if name != "node.id"} | {"broker.id": "7"}
    assert derived(settings, 1).node_id == 8


@pytest.mark.parametrize(
    ("change", "key", "sentence"),
    [
        (
            {"process.roles": "controller", "listeners": "CONTROLLER://:9093", "advertised.listeners": ""},
            "process.roles",
            "process.roles must contain broker where --brokers is given.",
        ),
        (
            {"listeners": "INTERNAL://:0,EXTERNAL://:9092,CONTROLLER://:9093"},
            "listeners",
            "listeners: INTERNAL needs a port where --brokers is given, not 0.",
        ),
        (
            {"listeners": "INTERNAL://:9102,EXTERNAL://:9092,CONTROLLER://:9093"},
            "listeners",
            "listeners: INTERNAL of broker 0 and EXTERNAL of broker 1 would both use port 9102; change "
            "ottla.brokers.port.step.",
        ),
    ],
)
def test_underivable_configuration_is_refused(change: dict[str, str], key: str, sentence: str) -> None:
    config = loaded({name: value for name, value in {**CLUSTER, **change}.items() if value})
    with pytest.raises(ConfigError) as refusal:
        check_derivable(config, 3)
    assert (refusal.value.key, refusal.value.sentence) == (key, sentence)


def test_port_above_the_last_one_is_refused() -> None:
    config = loaded({"listeners": "PLAINTEXT://:65530,CONTROLLER://:9093"})
    with pytest.raises(ConfigError, match="port 65530 is too high"):
        co_located_settings(config, 1, machine=MACHINE)
