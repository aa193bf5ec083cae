"""A node with a custom remote log metadata manager, which it loads by name."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.cli.shared.offsets import list_offsets
from broker.client import Client, ClientConfig
from storage.directories.checkpoints import TopicPartition
from tests.support.clients.checkable_records import Recipe, read_back, write
from tests.support.clients.replicated_load import admin_of, create_topic
from tests.support.processes.local_tiered_cluster import SETTINGS, TIERED, until
from tests.support.processes.ottla_node import OttlaNode, clean_environment

pytestmark = pytest.mark.integration

EARLIEST_LOCAL, LATEST_TIERED = -4, -5
COUNT = 4000
RECIPE = Recipe(1000, 1_700_000_000_000)
THEIRS = "tests.support.fakes.file_remote_metadata:FileRemoteMetadata"


def settings(directory: Path) -> dict[str, str]:
    kept = {key: value for key, value in SETTINGS.items() if not key.startswith("rlmm.config.")}
    return {
        **kept,
        "rsm.config.storage.root": str(directory / "remote"),
        "remote.log.metadata.manager.class.name": THEIRS,
        "remote.log.metadata.manager.class.path": str(Path(__file__).parents[3]),
        "rlmm.config.shelf.path": str(directory / "shelf"),
    }


def offset(node: OttlaNode, which: int) -> int:
    with Client(ClientConfig.parse(node.bootstrap)) as client:
        return list_offsets(client, {TopicPartition("theirs", 0): which})[TopicPartition("theirs", 0)]


def test_custom_manager_serves_copies_reads_and_deletions(tmp_path: Path) -> None:
    def objects() -> list[Path]:
        return [path for path in (tmp_path / "remote").rglob("*") if path.is_file()]

    def wait(condition: Callable[[], bool], what: str) -> None:
        until(lambda: condition() or None, what)

    with OttlaNode(tmp_path / "node", settings(tmp_path)) as node:
        create_topic(node.bootstrap, "theirs", 1, 1, (), **TIERED)
        write(node.bootstrap, "theirs", RECIPE, 0, range(COUNT))
        wait(lambda: offset(node, EARLIEST_LOCAL) > 0 and offset(node, LATEST_TIERED) > COUNT // 2, "a tiered log")
        assert node.terminate() == 0
        node.start()
        found = read_back(node.bootstrap, "theirs", RECIPE, {0: COUNT})
        assert (found.faults, found.count) == ([], COUNT)
        admin = admin_of(node.bootstrap)
        assert [name for name in admin.list_topics(timeout=10).topics if name.startswith("__remote")] == []
        admin.delete_topics(["theirs"])["theirs"].result(30)
        wait(lambda: not objects(), "an empty store")


def test_misconfigured_manager_stops_the_start_with_one_error_line(tmp_path: Path) -> None:
    node = OttlaNode(tmp_path / "node", settings(tmp_path))
    del node.settings["rlmm.config.shelf.path"]
    node.directory.mkdir()
    ended = subprocess.run(node.command(), capture_output=True, text=True, timeout=60, env=clean_environment())
    assert ended.returncode == 1
    assert "rlmm.config.shelf.path must name a file." in ended.stderr
    assert "Traceback" not in ended.stderr
