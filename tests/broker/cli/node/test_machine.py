"""Configurations and directories of `ottla start --brokers`, without processes."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.cli.main import cli
from broker.cli.node.machine import MachineOptions, load_machine, run_machine
from broker.cli.shared.failure import CommandFailed
from storage.directories.meta_properties import META_PROPERTIES_FILE, read_meta_properties
from storage.files import OsFileSystem

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=10\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs={tmp_path}/data\n"
    )
    return path


def options(config_file: Path | None, *overrides: str, brokers: int = 2) -> MachineOptions:
    return MachineOptions(None if config_file is None else str(config_file), overrides, brokers, "text", "INFO")


def test_overrides_and_environment_count_before_the_derivation(config_file: Path) -> None:
    machine = load_machine(str(config_file), ["node.id=20"], {"KAFKA_BROKER_RACK": "r"}, 3)
    assert [config.node_id for config in machine.brokers] == [20, 21, 22]
    assert {config.broker_rack for config in machine.brokers} == {"r"}


def test_bad_value_is_refused_with_its_key(config_file: Path) -> None:
    with pytest.raises(CommandFailed, match=r"num\.partitions"):
        load_machine(str(config_file), ["num.partitions=none"], {}, 2)


def test_format_prepares_all_brokers(config_file: Path, tmp_path: Path) -> None:
    arguments = ["storage", "format", "-c", str(config_file), "-t", CLUSTER_ID, "--standalone", "--brokers", "2"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    found = [read_meta_properties(OsFileSystem(), str(tmp_path / "data" / f"broker-{index}")) for index in range(2)]
    assert [(each.cluster_id, each.node_id) for each in found if each is not None] == [
        (CLUSTER_ID, 10),
        (CLUSTER_ID, 11),
    ]
    again = CliRunner().invoke(cli, [*arguments, "--ignore-formatted"])
    assert "already formatted" in again.output


def test_unformatted_machine_is_refused_with_the_command(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLUSTER_ID", raising=False)
    with pytest.raises(CommandFailed, match=r"ottla storage format --config .* --brokers 2"):
        run_machine(options(config_file))


def test_directory_of_a_single_broker_is_refused(config_file: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / META_PROPERTIES_FILE).write_text("version=1\n")
    with pytest.raises(CommandFailed, match=r"holds the data of a single broker; move its files to .*/data/broker-0"):
        run_machine(options(config_file))
