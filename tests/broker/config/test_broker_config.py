from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.config.internal_topics import internal_min_isr, internal_replication_factor
from broker.config.load import parse_config
from tests.broker.config.refusals import refused_key
from tests.broker.config.test_listeners import COMBINED


def config_with(**changes: str) -> BrokerConfig:
    return parse_config(COMBINED | {name.replace("_", "."): value for name, value in changes.items()})


def test_settings_are_typed_and_defaulted() -> None:
    config = config_with(num_partitions="3")
    assert config.num_partitions == 3
    assert config.auto_create_topics_enable is True
    assert config.log_cleaner_io_buffer_load_factor == 0.9
    assert config.broker_rack is None
    assert config.value("group.consumer.assignors") == ("uniform", "range")
    assert config.http_listener is not None
    assert config.http_listener.port == 9644
    assert config.raw("num.partitions") == "3"
    assert config.raw("num.io.threads") == "8"
    assert config.raw("no.such.key") is None


def test_log_dirs_are_parsed() -> None:
    assert config_with().log_dirs == ("/tmp/kafka-logs",)
    config = config_with(log_dirs="/a, /b,/a", log_dir="/c")
    assert (config.log_dirs, config.metadata_log_dir) == (("/a", "/b"), "/a")
    assert config_with(log_dir="/c", metadata_log_dir="/m").metadata_log_dir == "/m"
    spelled = config_with(log_dirs="/a/,/a,/b//c", metadata_log_dir="/a/.")
    assert (spelled.log_dirs, spelled.metadata_log_dir) == (("/a", "/b/c"), "/a")


def test_log_directories_are_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = config_with(log_dirs="./data,x", metadata_log_dir="meta")
    assert config.log_dirs == (f"{tmp_path}/data", f"{tmp_path}/x")
    assert config.metadata_log_dir == f"{tmp_path}/meta"


def test_empty_http_listener_is_none() -> None:
    assert config_with(ottla_http_listener="").http_listener is None


def test_connection_overrides_are_parsed_by_host() -> None:
    config = config_with(max_connections_per_ip="0", max_connections_per_ip_overrides="127.0.0.1:5, h:6")
    assert config.max_connections_per_ip_overrides == {"127.0.0.1": 5, "h": 6}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num.partitions", "0"),
        ("num.partitions", "1.5"),
        ("auto.create.topics.enable", "yes"),
        ("log.cleanup.policy", "foo"),
        ("compression.type", "foo"),
        ("compression.gzip.level", "0"),
        ("log.cleaner.min.cleanable.ratio", "2"),
        ("log.segment.bytes", "100"),
        ("log.retention.hours", "0"),
        ("log.retention.ms", "0"),
        ("log.roll.ms", "0"),
        ("log.roll.jitter.ms", "-1"),
        ("log.dirs", ""),
        ("replica.socket.timeout.ms", "100"),
        ("group.coordinator.rebalance.protocols", "consumer"),
        ("group.coordinator.rebalance.protocols", "classic,foo"),
        ("group.consumer.session.timeout.ms", "1"),
        ("group.consumer.heartbeat.interval.ms", "60000"),
        ("group.consumer.max.session.timeout.ms", "1"),
        ("group.streams.num.standby.replicas", "9"),
        ("log.cleaner.dedupe.buffer.size", "100"),
        ("log.cleaner.threads", "0"),
        ("offsets.topic.compression.codec", "9"),
        ("max.connections.per.ip", "0"),
        ("max.connections.per.ip.overrides", "bad"),
        ("max.connections.per.ip.overrides", "1.2.3.4:x"),
        ("queued.max.request.bytes", "10"),
        ("ottla.http.listener", "nowhere"),
        ("metadata.snapshot.min.changed_records.ratio", "1.5"),
        ("listener.name.plaintext.max.connections", "x"),
    ],
)
def test_error_of_a_bad_value_is_one_sentence_that_names_the_key(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(COMBINED | {key: value})
    assert caught.value.key == key
    assert caught.value.sentence.startswith(key)
    assert caught.value.sentence.endswith(".")
    assert "\n" not in caught.value.sentence


def test_dynamic_password_is_accepted() -> None:
    config = config_with()
    changed, problems = config.with_dynamic(cluster={}, broker={"listener.name.x.ssl.key.password": "p"})
    assert problems == []
    assert changed.raw("listener.name.x.ssl.key.password") == "p"


@pytest.mark.parametrize("key", ["process.roles", "node.id", "controller.listener.names"])
def test_required_keys_must_be_set(key: str) -> None:
    with pytest.raises(ConfigError, match="must be set"):
        parse_config({name: value for name, value in COMBINED.items() if name != key})


def test_replica_fetch_wait_above_lag_time_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        config_with(replica_lag_time_max_ms="100")
    assert caught.value.key == "replica.fetch.wait.max.ms"


def test_unknown_replica_selector_is_refused() -> None:
    for name in ("org.apache.kafka.common.replica.RackAwareReplicaSelector", ""):
        assert (config_with(replica_selector_class=name).replica_selector_class or "") == name
    with pytest.raises(ConfigError, match=r"replica\.selector\.class is org\.example\.Mine") as caught:
        config_with(replica_selector_class="org.example.Mine")
    assert caught.value.key == "replica.selector.class"


def test_dynamic_values_take_precedence_over_static_values() -> None:
    config = config_with(num_io_threads="4")
    changed, problems = config.with_dynamic(cluster={"num.io.threads": "5", "num.network.threads": "6"}, broker={})
    assert (changed.value("num.io.threads"), changed.value("num.network.threads"), problems) == (5, 6, [])
    changed, _ = changed.with_dynamic(cluster={"num.io.threads": "5"}, broker={"num.io.threads": "7"})
    assert (changed.value("num.io.threads"), changed.value("num.network.threads")) == (7, 3)
    assert config.value("num.io.threads") == 4


def test_stored_value_that_no_longer_parses_is_reported_and_left_out() -> None:
    changed, problems = config_with().with_dynamic(cluster={"num.io.threads": "many"}, broker={})
    assert changed.value("num.io.threads") == 8
    assert [problem.key for problem in problems] == ["num.io.threads"]


def test_plugin_settings_are_returned_without_prefix() -> None:
    config = parse_config(COMBINED | {"rsm.config.storage.root": "/r", "rsm.config.chunk.size": "4"})
    assert config.settings_below("rsm.config.") == {"storage.root": "/r", "chunk.size": "4"}


@pytest.mark.parametrize(("voters", "brokers", "factor"), [(1, 1, 1), (1, 2, 2), (1, 5, 3), (1, 0, 1), (3, 1, 3)])
def test_internal_replication_factor_is_limited_with_one_voter_only(voters: int, brokers: int, factor: int) -> None:
    assert internal_replication_factor(3, voter_count=voters, broker_count=brokers) == factor
    assert internal_min_isr(2, factor) == min(2, factor)


REMOTE_ON = {"remote_log_storage_system_enable": "true", "remote_log_storage_manager_class_name": "s3"}


@pytest.mark.parametrize(
    "settings",
    [
        {"log_local_retention_ms": "3600000", "log_retention_hours": "1"},
        {"log_local_retention_ms": "-1", "log_retention_ms": "-1"},
        {"log_local_retention_bytes": "10"},
    ],
)
def test_local_retention_may_equal_total_retention(settings: dict[str, str]) -> None:
    assert refused_key(lambda: config_with(**REMOTE_ON, **settings)) is None


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"ottla_log_remote_storage_enable": "true"}, "ottla.log.remote.storage.enable"),
        ({"remote_log_storage_system_enable": "true"}, "remote.log.storage.manager.class.name"),
        (
            {
                "remote_log_storage_system_enable": "true",
                "remote_log_storage_manager_class_name": "s3",
                "remote_log_metadata_manager_listener_name": "NOWHERE",
            },
            "remote.log.metadata.manager.listener.name",
        ),
        (REMOTE_ON | {"log_local_retention_ms": "-1"}, "log.local.retention.ms"),
        (REMOTE_ON | {"log_local_retention_ms": "3600001", "log_retention_hours": "1"}, "log.local.retention.ms"),
        (REMOTE_ON | {"log_local_retention_bytes": "10", "log_retention_bytes": "9"}, "log.local.retention.bytes"),
    ],
)
def test_remote_storage_settings_are_checked_together(settings: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_with(**settings)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("uri", "word"),
    [
        ("gs://b", "gs:// is no object store"),
        ("s3://b?regoin=x", "'regoin'"),
        ("s3://k:sesame@b", "must not contain credentials"),
    ],
)
def test_invalid_snapshot_store_uri_is_refused(uri: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word) as refused:
        parse_config({**COMBINED, "ottla.metadata.snapshot.import.uri": uri})
    assert "sesame" not in refused.value.sentence
    parse_config({**COMBINED, "ottla.metadata.snapshot.import.uri": "s3://bucket/prefix?region=x"})
    parse_config({**COMBINED, "ottla.metadata.snapshot.import.uri": ""})
