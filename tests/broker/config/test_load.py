from pathlib import Path

import pytest

from broker.config.errors import ConfigError
from broker.config.load import effect_warnings, load_config


def properties(directory: Path, text: str) -> str:
    path = directory / "server.properties"
    path.write_text(text)
    return str(path)


COMBINED = """
process.roles = broker,controller
node.id=7
listeners: PLAINTEXT://127.0.0.1:19092,\\
    CONTROLLER://127.0.0.1:19093
controller.listener.names=CONTROLLER
controller.quorum.voters=7@127.0.0.1:19093
"""


def test_node_without_settings_is_a_cluster_of_its_own() -> None:
    config, warnings = load_config(None, [], {})
    assert config.lone
    assert (config.node_id, config.is_broker, config.is_controller) == (1, True, True)
    assert [str(listener) for listener in config.client_listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert [str(listener) for listener in config.controller_listeners] == ["CONTROLLER://127.0.0.1:9093"]
    assert config.log_dirs == (str(Path("data").absolute()),)
    assert [voter.id for voter in config.voters] == [1]
    assert warnings == []


def test_lone_node_keeps_given_settings() -> None:
    config, _ = load_config(None, ["listeners=PLAINTEXT://127.0.0.1:0", "log.dir=/x"], {"CLUSTER_ID": "abc"})
    assert config.lone
    assert config.cluster_id == "abc"
    assert config.log_dirs == ("/x",)
    assert config.controller_listeners[0].port == 0
    assert [str(listener) for listener in config.client_listeners] == ["PLAINTEXT://127.0.0.1:0"]


def test_settings_of_a_file_are_used_unchanged(tmp_path: Path) -> None:
    config, warnings = load_config(properties(tmp_path, COMBINED), [], {})
    assert not config.lone
    assert config.node_id == 7
    assert config.log_dirs == ("/tmp/kafka-logs",)
    assert warnings == []


def test_file_without_process_roles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"process\.roles must be set"):
        load_config(properties(tmp_path, "num.partitions=3"), [], {})


def test_override_precedes_environment_precedes_file_precedes_default(tmp_path: Path) -> None:
    path = properties(tmp_path, COMBINED + "num.partitions=2\nlog.segment.bytes=2000000\n")
    environ = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_LOG_SEGMENT_BYTES": "3000000"}
    config, _ = load_config(path, ["num.partitions=4", "num.partitions=5"], environ)
    assert (config.num_partitions, config.value("log.segment.bytes")) == (5, 3_000_000)


def test_unknown_key_warns_with_the_nearest_key() -> None:
    _, warnings = load_config(None, ["num.partition=3", "zzz=1"], {"KAFKA_HEAP_OPTS": "-Xmx1G"})
    assert warnings == [
        "num.partition is not a configuration key and has no effect. Did you mean num.partitions?",
        "zzz is not a configuration key and has no effect.",
    ]


def test_key_that_is_not_honoured_warns() -> None:
    _, warnings = load_config(None, ["num.io.threads=3", "leader.replication.throttled.rate=1"], {})
    assert "num.io.threads" in warnings[0]
    assert "AlterConfigs" in warnings[1]


def test_plugin_settings_do_not_warn() -> None:
    _, warnings = load_config(None, ["rsm.config.storage.root=/r"], {})
    assert warnings == []


def test_plugin_settings_below_a_custom_prefix_do_not_warn() -> None:
    prefix = "remote.log.metadata.manager.impl.prefix"
    honoured = "my.metadata.remote.log.metadata.consume.wait.ms"
    _, warnings = load_config(None, [f"{prefix}=my.metadata.", f"{honoured}=1", "rsm.config.storage.root=/r"], {})
    assert warnings == []


def test_plugin_settings_below_a_replaced_prefix_warn() -> None:
    prefix = "remote.log.storage.manager.impl.prefix"
    _, warnings = load_config(None, [f"{prefix}=my.", "rsm.config.storage.root=/r", "my.storage.root=/r"], {})
    assert warnings == ["rsm.config.storage.root is not a configuration key and has no effect."]


def test_setting_without_its_prefix_warns_with_the_prefix() -> None:
    name = "remote.log.metadata.topic.replication.factor"
    _, warnings = load_config(None, [f"{name}=1"], {})
    assert warnings == [f"{name} is not a configuration key and has no effect. Did you mean rlmm.config.{name}?"]


def test_kip_630_name_is_an_alias() -> None:
    config, warnings = load_config(None, ["metadata.snapshot.min.new_records.size=1000"], {})
    assert config.metadata_log_max_record_bytes_between_snapshots == 1000
    assert warnings == []
    with pytest.raises(ConfigError, match=r"^metadata\.snapshot\.min\.new_records\.size is 'x' but"):
        load_config(None, ["metadata.snapshot.min.new_records.size=x"], {})


def test_alias_value_is_converted_to_the_keys_unit() -> None:
    name = "remote.log.index.file.cache.total.size.mb"
    config, warnings = load_config(None, [f"{name}=64"], {})
    assert config.remote_log_index_file_cache_total_size_bytes == 64 * 1024 * 1024
    assert warnings == []
    with pytest.raises(ConfigError, match=r"^remote\.log\.index\.file\.cache\.total\.size\.mb is '1g' but"):
        load_config(None, [f"{name}=1g"], {})


def test_deprecated_key_applies_without_its_replacement() -> None:
    old, new = "remote.log.manager.thread.pool.size", "remote.log.manager.follower.thread.pool.size"
    config, warnings = load_config(None, [f"{old}=7"], {})
    assert config.remote_log_manager_follower_thread_pool_size == 7
    assert warnings == []
    config, _ = load_config(None, [f"{old}=7", f"{new}=3"], {})
    assert config.remote_log_manager_follower_thread_pool_size == 3


def test_broker_id_stands_for_node_id(tmp_path: Path) -> None:
    config, _ = load_config(properties(tmp_path, COMBINED.replace("node.id", "broker.id")), [], {})
    assert config.node_id == 7


@pytest.mark.parametrize("override", ["num.partitions", "=3"])
def test_override_without_key_or_value_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        load_config(None, [override], {})


def test_override_value_may_contain_equal_signs() -> None:
    config, _ = load_config(None, ["broker.rack=a=b"], {})
    assert config.broker_rack == "a=b"


def test_missing_file_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config(str(tmp_path / "none.properties"), [], {})


def test_malformed_file_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a properties file"):
        load_config(properties(tmp_path, "a=\\uZZZZ"), [], {})


def test_value_other_than_the_fixed_one_warns() -> None:
    assert load_config(None, ["log.cleaner.threads=1"], {})[1] == []
    (warning,) = load_config(None, ["log.cleaner.threads=4"], {})[1]
    assert warning.startswith("log.cleaner.threads is 4, but Ottla acts as if it were 1")


def test_dynamic_settings_without_effect_are_named_with_the_static_ones() -> None:
    config, warnings = load_config(None, ["no.such.key=1"], {})
    dynamic, problems = config.with_dynamic(cluster={"num.io.threads": "4"}, broker={"compression.type": "zstd"})
    found = effect_warnings(dynamic)
    assert problems == []
    assert found[0] == warnings[0] == "no.such.key is not a configuration key and has no effect."
    assert found[1:] == ["num.io.threads is a key of Apache Kafka that Ottla does not act upon."]


def test_lone_node_without_settings_has_no_effect_warnings() -> None:
    config, _ = load_config(None, [], {})
    assert effect_warnings(config) == []
