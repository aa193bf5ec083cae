"""Group configs, client metrics subscriptions and dynamic broker settings, with the decisions of Apache Kafka 4.2."""

import pytest

from broker.config.client_metrics_config import UnknownSubscriptionSetting, validate_client_metrics_configs
from broker.config.dynamic import NotDynamic, check_thread_counts, validate_dynamic_change
from broker.config.errors import ConfigError
from broker.config.group_config import validate_group_configs
from broker.config.load import parse_config
from tests.broker.config.refusals import refused_key
from tests.broker.config.test_listeners import COMBINED

BROKER = parse_config(COMBINED)


@pytest.mark.parametrize(
    "configs",
    [
        {"consumer.session.timeout.ms": "46000"},
        {"share.auto.offset.reset": "by_duration:PT1H"},
        {"share.auto.offset.reset": "earliest"},
        {"streams.initial.rebalance.delay.ms": "999999"},
        {"streams.num.standby.replicas": "2"},
    ],
)
def test_valid_group_configs_are_accepted(configs: dict[str, str]) -> None:
    assert refused_key(lambda: validate_group_configs(configs, BROKER)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("foo", "1"),
        ("consumer.session.timeout.ms", "1"),
        ("consumer.session.timeout.ms", "70000"),
        ("consumer.heartbeat.interval.ms", "16000"),
        ("consumer.heartbeat.interval.ms", "x"),
        ("share.record.lock.duration.ms", "1000"),
        ("share.record.lock.duration.ms", "70000"),
        ("share.auto.offset.reset", "foo"),
        ("share.auto.offset.reset", "by_duration:x"),
        ("share.auto.offset.reset", "by_duration:P"),
        ("share.auto.offset.reset", "EARLIEST"),
        ("share.isolation.level", "x"),
        ("streams.num.standby.replicas", "5"),
    ],
)
def test_invalid_group_configs_are_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_group_configs({key: value}, BROKER)
    assert caught.value.key == key


@pytest.mark.parametrize(
    "configs",
    [
        {"interval.ms": "100"},
        {"metrics": "*"},
        {"metrics": ""},
        {"match": " client_id = x "},
        {"match": "client_software_name=a,client_source_port=1"},
    ],
)
def test_valid_subscriptions_are_accepted(configs: dict[str, str]) -> None:
    assert refused_key(lambda: validate_client_metrics_configs(configs)) is None


@pytest.mark.parametrize(
    "configs",
    [
        {"interval.ms": "99"},
        {"interval.ms": "3600001"},
        {"match": "foo"},
        {"match": "foo=bar"},
        {"match": "client_id=["},
    ],
)
def test_invalid_subscriptions_are_refused(configs: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        validate_client_metrics_configs(configs)


def test_unknown_subscription_setting_has_its_own_error() -> None:
    with pytest.raises(UnknownSubscriptionSetting):
        validate_client_metrics_configs({"foo": "1"})


@pytest.mark.parametrize(
    ("name", "value", "for_one", "for_all"),
    [
        ("num.io.threads", "16", True, True),
        ("foo.bar", "1", True, True),
        ("listeners", "PLAINTEXT://:1", True, False),
        ("sasl.jaas.config", "x", True, False),
        ("listener.name.plaintext.ssl.keystore.location", "/x", True, False),
        ("listener.name.plaintext.max.connections", "5", True, True),
        ("listener.name.foo.bar", "x", True, False),
        ("leader.replication.throttled.rate", "10", True, True),
        ("ssl.keystore.location", "/x", False, False),
        ("node.id", "3", False, False),
        ("advertised.listeners", "PLAINTEXT://x:1", False, False),
        ("auto.create.topics.enable", "true", False, False),
        ("log.retention.hours", "3", False, False),
    ],
)
def test_dynamic_change_depends_on_the_keys_scope(name: str, value: str, for_one: bool, for_all: bool) -> None:
    for per_broker, allowed in ((True, for_one), (False, for_all)):
        if allowed:
            validate_dynamic_change({name: value}, per_broker=per_broker)
        else:
            with pytest.raises(NotDynamic):
                validate_dynamic_change({name: value}, per_broker=per_broker)


@pytest.mark.parametrize(
    ("name", "value"),
    [("num.io.threads", "x"), ("leader.replication.throttled.rate", "-1"), ("log.segment.bytes", "5")],
)
def test_dynamic_value_must_parse(name: str, value: str) -> None:
    with pytest.raises(ConfigError):
        validate_dynamic_change({name: value}, per_broker=True)


@pytest.mark.parametrize(("threads", "allowed"), [(3, False), (4, True), (8, True), (16, True), (17, False)])
def test_thread_counts_change_by_half_to_double(threads: int, allowed: bool) -> None:
    proposed, _ = BROKER.with_dynamic(cluster={"num.io.threads": str(threads)}, broker={})
    if allowed:
        check_thread_counts(BROKER, proposed)
    else:
        with pytest.raises(ConfigError):
            check_thread_counts(BROKER, proposed)
