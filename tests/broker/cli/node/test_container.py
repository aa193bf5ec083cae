"""The environment of a container, read as by the apache/kafka image."""

from pathlib import Path

import pytest

from broker.cli.node.container import DATA, ContainerStart, prepare, with_arguments
from broker.cli.shared.failure import CommandFailed
from broker.config.errors import ConfigError
from broker.config.load import load_config

SHIPPED = "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
IMAGE_CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    return tmp_path / "mounted.properties"


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    file = tmp_path / "shipped.properties"
    file.write_text(SHIPPED)
    return file


def test_default_file_is_used_without_settings(mounted: Path, shipped: Path) -> None:
    start = prepare({"PATH": "/bin"}, mounted, shipped)
    assert start == ContainerStart(
        {"PATH": "/bin", "CLUSTER_ID": IMAGE_CLUSTER_ID, "KAFKA_LOG_DIRS": DATA}, config_file=shipped
    )


def test_environment_settings_replace_the_default_file(mounted: Path, shipped: Path) -> None:
    start = prepare({"KAFKA_NODE_ID": "7", "CLUSTER_ID": CLUSTER_ID}, mounted, shipped)
    assert start.config_file is None
    assert start.environment == {"KAFKA_NODE_ID": "7", "CLUSTER_ID": CLUSTER_ID, "KAFKA_LOG_DIRS": DATA}


def test_jvm_options_are_not_settings(mounted: Path, shipped: Path) -> None:
    assert prepare({"KAFKA_HEAP_OPTS": "-Xmx1g"}, mounted, shipped).config_file == shipped


def test_environment_overrides_the_mounted_file(mounted: Path, shipped: Path) -> None:
    mounted.write_text(SHIPPED + "controller.quorum.voters=1@localhost:9093\nlog.dirs=/elsewhere\nnum.partitions=3\n")
    start = prepare({"KAFKA_NUM_PARTITIONS": "5"}, mounted, shipped)
    assert start.config_file == mounted
    assert "KAFKA_LOG_DIRS" not in start.environment, "the file has log.dirs"
    settings = start.environment | {"KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER"}
    config, _ = load_config(str(mounted), (), settings)
    assert (config.num_partitions, config.log_dirs, config.cluster_id) == (5, ("/elsewhere",), IMAGE_CLUSTER_ID)


@pytest.mark.parametrize(
    ("advertised", "listeners"),
    [
        ("PLAINTEXT://broker:9092", "PLAINTEXT://0.0.0.0:9092"),
        ("A://[::1]:1,B://host.example:2", "A://0.0.0.0:1,B://0.0.0.0:2"),
    ],
)
def test_listeners_default_to_the_advertised_listeners(
    advertised: str, listeners: str, mounted: Path, shipped: Path
) -> None:
    environ = {"KAFKA_ADVERTISED_LISTENERS": advertised}
    assert prepare(environ, mounted, shipped).environment["KAFKA_LISTENERS"] == listeners


def test_explicit_listeners_are_kept(mounted: Path, shipped: Path) -> None:
    environ = {"KAFKA_ADVERTISED_LISTENERS": "A://a:1", "KAFKA_LISTENERS": "A://:2"}
    assert prepare(environ, mounted, shipped).environment["KAFKA_LISTENERS"] == "A://:2"


def test_empty_listeners_count_as_unset(mounted: Path, shipped: Path) -> None:
    environ = {"KAFKA_ADVERTISED_LISTENERS": "A://a:1", "KAFKA_LISTENERS": ""}
    assert prepare(environ, mounted, shipped).environment["KAFKA_LISTENERS"] == "A://0.0.0.0:1"


def test_arguments_override_the_environment() -> None:
    arguments = ["KAFKA_NODE_ID=7", "CLUSTER_ID=", "--override", "num.partitions=3", "A=1"]
    environ, options = with_arguments({"KAFKA_NODE_ID": "1", "PATH": "/bin"}, arguments)
    assert environ == {"KAFKA_NODE_ID": "7", "CLUSTER_ID": "", "PATH": "/bin"}
    assert options == ["--override", "num.partitions=3", "A=1"]
    assert with_arguments({}, []) == ({}, [])


def test_advertised_listeners_of_a_controller_are_refused(mounted: Path, shipped: Path) -> None:
    environ = {"KAFKA_PROCESS_ROLES": "controller", "KAFKA_ADVERTISED_LISTENERS": ""}
    assert "KAFKA_ADVERTISED_LISTENERS" not in prepare(environ, mounted, shipped).environment
    with pytest.raises(CommandFailed, match="KAFKA_ADVERTISED_LISTENERS"):
        prepare(environ | {"KAFKA_ADVERTISED_LISTENERS": "A://a:1"}, mounted, shipped)


def test_unreadable_file_is_named_in_the_error(mounted: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.properties"):
        prepare({}, mounted, tmp_path / "absent.properties")
