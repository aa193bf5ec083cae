"""Formatting at start, and the errors of nodes that may not format their directories."""

import pytest

from broker.config.load import load_config
from broker.node.directories import NotFormatted, open_directories
from storage.directories.log_dir import LogDir
from tests.support.fakes.memory_files import MemoryFileSystem

CLUSTER_ID = "5UGSfPCiS0KcqzV2IZCXIA"
COMBINED = (
    "process.roles=broker,controller",
    "node.id=1",
    "listeners=PLAINTEXT://h:1,CONTROLLER://h:2",
    "controller.listener.names=CONTROLLER",
    "log.dirs=/data",
)
MERE_BROKER = (
    "process.roles=broker",
    "node.id=2",
    "listeners=PLAINTEXT://h:1",
    "controller.listener.names=CONTROLLER",
    "controller.quorum.bootstrap.servers=h:2",
    "log.dirs=/data",
)
STATIC, DYNAMIC = "controller.quorum.voters=1@h:2", "controller.quorum.bootstrap.servers=h:2"


def _no_failure(directory: LogDir, _lost: object) -> None:
    raise AssertionError(directory)


def _open(settings: tuple[str, ...], environ: dict[str, str]) -> tuple[str, MemoryFileSystem]:
    fs = MemoryFileSystem()
    fs.make_directory("/data")
    config, _ = load_config(None, settings, environ)
    return open_directories(fs, config, _no_failure).cluster_id, fs


def test_lone_node_without_configuration_formats_itself() -> None:
    cluster_id, fs = _open(("log.dirs=/data",), {})
    assert len(cluster_id) == 22
    assert fs.exists("/data/meta.properties")
    assert fs.exists("/data/bootstrap.checkpoint")


@pytest.mark.parametrize("settings", [(*COMBINED, STATIC), MERE_BROKER])
def test_node_with_cluster_id_in_environment_formats_itself(settings: tuple[str, ...]) -> None:
    cluster_id, fs = _open(settings, {"CLUSTER_ID": CLUSTER_ID})
    assert cluster_id == CLUSTER_ID
    assert fs.exists("/data/meta.properties")


@pytest.mark.parametrize(
    ("settings", "environ", "sentence"),
    [
        ((*COMBINED, STATIC), {}, "--config FILE` first"),
        (MERE_BROKER, {}, "with --no-initial-controllers first"),
        ((*COMBINED, DYNAMIC), {}, "with --standalone, --initial-controllers or --no-initial-controllers first"),
        ((*COMBINED, DYNAMIC), {"CLUSTER_ID": CLUSTER_ID}, f"--cluster-id {CLUSTER_ID} --config FILE` with --stand"),
        ((*COMBINED, STATIC), {"CLUSTER_ID": "mine"}, "CLUSTER_ID is 'mine' but must be a cluster id"),
    ],
)
def test_error_of_an_unformatted_node_names_the_command(
    settings: tuple[str, ...], environ: dict[str, str], sentence: str
) -> None:
    with pytest.raises(NotFormatted) as refused:
        _open(settings, environ)
    assert sentence in str(refused.value)
