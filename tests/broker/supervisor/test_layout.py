"""Layout of a local cluster, and the command line of its nodes."""

from pathlib import Path

from broker.cli.node.parent_watchdog import STOP_TIMEOUT_S
from broker.config.load import load_config
from broker.supervisor.layout import node_layout, start_command
from broker.supervisor.orphaned_node import PATIENCE_S, POLL_S, wait_until_free
from tests.support.fakes.memory_files import MemoryFileSystem


def test_nodes_have_directories_ports_and_ids_of_their_own() -> None:
    settings = node_layout(2, Path("/c"), 9092, {0: 9644, 1: 9645, 2: 9646}).settings(["num.partitions=7"])
    config, warnings = load_config(None, settings, {})
    assert warnings == []
    assert [(each.host, each.port) for each in config.bootstrap_servers] == [
        ("127.0.0.1", 9093),
        ("127.0.0.1", 9103),
        ("127.0.0.1", 9113),
    ]
    assert config.value("controller.quorum.auto.join.enable") is True
    assert (config.node_id, config.num_partitions, config.log_dirs) == (3, 7, ("/c/node-2/data",))
    assert [listener.port for listener in (*config.client_listeners, *config.controller_listeners)] == [9112, 9113]
    assert config.http_listener is not None
    assert config.http_listener.port == 9646


def test_user_settings_take_precedence() -> None:
    layout = node_layout(0, Path("/c"), 9092, {0: 9644})
    assert load_config(None, layout.settings(), {})[0].ottla_scheduling_policy == "batch"
    config, _ = load_config(None, layout.settings(["node.id=9", "ottla.scheduling.policy=inherit"]), {})
    assert (config.node_id, config.ottla_scheduling_policy) == (9, "inherit")


def test_start_command_contains_every_setting() -> None:
    assert start_command(["a=1", "b=2"])[-4:] == ("--override", "a=1", "--override", "b=2")


def test_start_command_names_a_file_in_place_of_passwords() -> None:
    assert start_command(["a=1"], Path("/c/s.properties"))[-4:] == (
        "--override",
        "a=1",
        "--overrides-file",
        "/c/s.properties",
    )


def test_wait_for_an_orphaned_node_has_a_timeout() -> None:
    fs = MemoryFileSystem()
    fs.make_directory("/data")
    lock = fs.lock("/data/.lock")
    slept: list[float] = []
    assert not wait_until_free(fs, "/data", slept.append)
    assert sum(slept) >= PATIENCE_S - POLL_S
    assert PATIENCE_S > STOP_TIMEOUT_S, "an orphaned node may take STOP_TIMEOUT_S to stop"

    def free_it(_seconds: float) -> None:
        lock.release()

    assert wait_until_free(fs, "/data", free_it)
    fs.lock("/data/.lock")
