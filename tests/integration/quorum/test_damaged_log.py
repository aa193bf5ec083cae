"""A controller whose metadata log rots on the disk, beside two sound ones."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.integration.quorum_run import QuorumRun
from tests.support.kafka.kraft_nodes import until
from tests.support.processes.ottla_cluster import OttlaCluster
from tests.support.processes.suspension import suspend

pytestmark = pytest.mark.integration

TIMEOUT_S = 60


def test_controller_with_a_damaged_log_refuses_to_start_and_rejoins_after_a_wipe(tmp_path: Path) -> None:
    with OttlaCluster(tmp_path / "cluster") as cluster:
        quorum = QuorumRun(cluster)
        quorum.create(quorum.client(), "before")
        leader = cluster.leader_index()
        victim = (leader + 1) % 3
        others = [index for index in range(3) if index != victim]
        former = voter_directories(cluster, others)[victim + 1]

        segment = damage_and_kill(cluster, victim)
        until(lambda: "were synced: the disk has lost records" in cluster.log_text(victim), TIMEOUT_S)
        sentence = next(line for line in cluster.log_text(victim).splitlines() if "were synced" in line)
        assert f"{segment} has no valid batch at offset " in sentence
        assert "Traceback" not in cluster.log_text(victim)
        quorum.create(quorum.client(*others), "without-one")

        since = len(cluster.lines)
        wipe_stopped(cluster, victim)
        cluster.wait_ready(victim, since)
        until(lambda: voter_directories(cluster, others).get(victim + 1) not in (None, former), TIMEOUT_S)
        quorum.create(quorum.client(victim), "after")
        quorum.check_topics()


def voter_directories(cluster: OttlaCluster, live: list[int]) -> dict[int, str]:
    """Return the voters' directory ids by node id, as live nodes know them."""
    found = cluster.quorum(",".join(cluster.address(index) for index in live))
    return {int(voter["id"]): str(voter["directoryId"]) for voter in found["currentVoters"]}


def damage_and_kill(cluster: OttlaCluster, index: int) -> Path:
    """Flip a bit in the middle of a node's metadata log while the node is suspended, and kill the node."""
    pid = cluster.pid(index)
    assert pid is not None
    suspend(pid)
    segment = min(cluster.metadata_directory(index).glob("*.log"))
    with segment.open("r+b") as file:
        file.seek(segment.stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))
    os.kill(pid, signal.SIGKILL)
    return segment


def wipe_stopped(cluster: OttlaCluster, index: int) -> None:
    """Take away the data of a node that does not start; its next process finds an empty disk."""
    gone = cluster.node_directory(index) / "wiped"
    (cluster.node_directory(index) / "data").rename(gone)
    shutil.rmtree(gone)
