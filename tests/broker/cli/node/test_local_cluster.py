"""Formatting of a local cluster: all nodes at once, continued after an interruption, and single wiped nodes."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from broker.cli.main import run
from broker.cli.node.local_cluster import PLAN_FILE, LocalCluster
from broker.config.load import load_config
from broker.metadata.snapshot.codec import read_snapshot
from broker.supervisor.layout import LocalNode, node_layout
from broker.supervisor.node_supervisor import NotPrepared
from protocol.messages.common_records import VotersRecord
from protocol.primitives import Uuid
from storage.directories.meta_properties import MetaProperties, read_meta_properties
from storage.files import OsFileSystem

VOTERS = Path("__cluster_metadata-0/00000000000000000000-0000000000.checkpoint")


class Directories:
    """A cluster of three nodes below a temporary directory."""

    def __init__(self, root: Path, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self.root = root
        http_ports = {0: 9644, 1: 9645, 2: 9646}
        self.places = [node_layout(index, root, 9092, http_ports) for index in http_ports]
        configs = [load_config(None, each.settings(), environment)[0] for each in self.places]
        self.cluster = LocalCluster(OsFileSystem(), root, {config.node_id: config for config in configs})

    def data(self, node_id: int) -> Path:
        return self.root / f"node-{node_id - 1}" / "data"

    def prepare(self, node_id: int) -> None:
        directory = self.root / f"node-{node_id - 1}"
        self.cluster.prepare(LocalNode(node_id, directory, "127.0.0.1:1", None, ()))

    def identity(self, node_id: int) -> MetaProperties:
        meta = read_meta_properties(OsFileSystem(), str(self.data(node_id)))
        assert meta is not None
        return meta

    def voters(self, node_id: int) -> dict[int, Uuid]:
        control = read_snapshot((self.data(node_id) / VOTERS).read_bytes()).control
        assert control is not None
        assert isinstance(control.voters, VotersRecord)
        return {voter.voter_id: voter.voter_directory_id for voter in control.voters.voters}


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    return Directories(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "option", "port"),
    [(["--port", "65520"], "--port", 65541), (["--http-port", "65534", "--nodes", "3"], "--http-port", 65536)],
)
def test_port_above_65535_is_wrong_usage(
    arguments: list[str], option: str, port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cluster", "--dir", str(tmp_path / "cluster"), *arguments]) == 2
    message = f"{option} is too high for 3 nodes: the last node would need port {port}."
    assert message in capsys.readouterr().err
    assert not (tmp_path / "cluster").exists()


def test_first_start_formats_all_nodes_as_initial_controllers(directories: Directories) -> None:
    directories.prepare(2)
    identities = {node_id: directories.identity(node_id) for node_id in (1, 2, 3)}
    assert len({meta.cluster_id for meta in identities.values()}) == 1
    directory_ids = {node_id: meta.directory_id for node_id, meta in identities.items()}
    assert [directories.voters(node_id) for node_id in (1, 2, 3)] == [directory_ids] * 3
    assert not (directories.root / PLAN_FILE).exists()
    files = {(directories.data(node_id) / VOTERS).read_bytes() for node_id in (1, 2, 3)}
    assert len(files) == 1, "one id, one content"


def test_cluster_id_of_the_environment_is_used_if_valid(tmp_path: Path) -> None:
    good = Directories(tmp_path / "good", {"CLUSTER_ID": "rgtCNgvhR4erEWu7maR0lA"})
    good.prepare(1)
    assert good.identity(3).cluster_id == "rgtCNgvhR4erEWu7maR0lA"
    bad = Directories(tmp_path / "bad", {"CLUSTER_ID": "mine"})
    with pytest.raises(NotPrepared, match="CLUSTER_ID is 'mine', not a valid id"):
        bad.prepare(1)


def test_formatted_node_is_not_formatted_again(directories: Directories) -> None:
    directories.prepare(1)
    before = [directories.identity(node_id) for node_id in (1, 2, 3)]
    for node_id in (1, 2, 3):
        directories.prepare(node_id)
    assert [directories.identity(node_id) for node_id in (1, 2, 3)] == before


def test_wiped_node_rejoins_the_cluster_with_a_new_directory_id(directories: Directories) -> None:
    directories.prepare(1)
    before = directories.identity(2)
    shutil.rmtree(directories.root / "node-1")
    directories.prepare(1)
    assert not directories.data(2).exists()
    directories.prepare(2)
    after = directories.identity(2)
    assert after.cluster_id == before.cluster_id
    assert after.directory_id != before.directory_id
    assert not (directories.data(2) / VOTERS).exists()


def test_interrupted_format_continues_with_the_same_voters(directories: Directories) -> None:
    """A formatted node with other voters would never have a majority."""
    (directories.root / "node-1").write_text("in the way")
    with pytest.raises(NotPrepared, match="Not a directory"):
        directories.prepare(1)
    (directories.root / "node-1").unlink()
    first = directories.voters(1)
    directories.prepare(3)
    assert {node_id: directories.identity(node_id).directory_id for node_id in (1, 2, 3)} == first
    assert len({directories.identity(node_id).cluster_id for node_id in (1, 2, 3)}) == 1


def test_corrupt_meta_properties_is_reported(directories: Directories) -> None:
    directories.prepare(1)
    (directories.data(1) / "meta.properties").write_text("version=1\n")
    shutil.rmtree(directories.root / "node-1")
    with pytest.raises(NotPrepared):
        directories.prepare(2)
