"""A cluster of three whose nodes are killed, wiped, suspended and stopped one by one."""

import hashlib
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.integration import chaos_run
from tests.integration.quorum_run import QuorumRun, run
from tests.support.kafka.kraft_nodes import until
from tests.support.processes.ottla_cluster import OttlaCluster

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PATIENCE_S = 60
DEPOSED = "This node is not the active controller any more"
LONGEST_GAP_S = 30
"""Far above what a busy machine makes of a moment, and far below what waits for somebody who does not come."""
# Snapshots come after little, and the log goes as soon as it is in one.
TRIMMING = {
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "internal.metadata.log.segment.bytes": "2048",
    "metadata.max.retention.bytes": "1",
    "metadata.start.offset.lag.time.max.ms": "1000",
}
# Nobody but a node that is suspended is silent for so long, on a busy machine either.
PATIENT = {
    "metadata.max.idle.interval.ms": "0",
    "controller.quorum.fetch.timeout.ms": "6000",
    "controller.quorum.election.timeout.ms": "3000",
}


def test_kills_keep_topics_from_being_made_for_a_moment(tmp_path: Path) -> None:
    """The active controller and others in turn, and all at once in the end."""
    with OttlaCluster(tmp_path / "cluster") as cluster:
        quorum = run(cluster, kills=4)
    assert max(quorum.gaps_s) <= LONGEST_GAP_S, quorum.gaps_s


def test_stopping_takes_a_moment_and_keeps_everything(tmp_path: Path) -> None:
    cluster = OttlaCluster(tmp_path / "cluster")
    quorum = QuorumRun(cluster)
    for turn in range(3):
        cluster.start()
        quorum.check_everything_is_there()
        quorum.create(quorum.client(), f"turn-{turn}")
        begun = time.monotonic()
        assert cluster.stop() == 0
        assert time.monotonic() - begun < LONGEST_GAP_S
        for index in range(cluster.nodes):
            assert (cluster.node_directory(index) / "data" / ".kafka_cleanshutdown").exists()


def test_nodes_stopped_one_by_one_come_back_with_everything(tmp_path: Path) -> None:
    cluster = OttlaCluster(tmp_path / "cluster", restart=False)
    quorum = QuorumRun(cluster)
    with cluster:
        quorum.create(quorum.client(), "before")
        first = cluster.leader_index()
        others = [index for index in range(cluster.nodes) if index != first]
        assert cluster.terminate(first) < LONGEST_GAP_S
        assert quorum.create(quorum.client(*others), "without-one") < LONGEST_GAP_S
        assert cluster.terminate(others[0]) < LONGEST_GAP_S
        assert cluster.terminate(others[1]) < LONGEST_GAP_S, "without a quorum nobody can let it go"
    with cluster:
        quorum.check_everything_is_there()
        quorum.create(quorum.client(), "after")


def test_a_wiped_node_fetches_a_snapshot_and_becomes_a_voter_again(tmp_path: Path) -> None:
    with OttlaCluster(tmp_path / "cluster", settings=TRIMMING) as cluster:
        quorum = QuorumRun(cluster)
        admin = quorum.client()
        for number in range(40):
            quorum.create(admin, f"before-{number}")
        victim = (cluster.leader_index() + 1) % 3
        former = directory_ids(cluster)
        for index in range(3):
            cluster.cut_snapshot(index)
        until(lambda: log_start(cluster, cluster.leader_index()) > 0, PATIENCE_S)

        told_before = len(cluster.log_text(victim))
        cluster.wait_ready(victim, cluster.wipe(victim))
        until(lambda: victim + 1 in directory_ids(cluster), PATIENCE_S)
        now = until(lambda: has_replaced(cluster, victim, former), PATIENCE_S)
        assert {key: now[key] for key in now if key != victim + 1} == {
            key: former[key] for key in former if key != victim + 1
        }
        assert "Loaded a metadata snapshot" in cluster.log_text(victim)[told_before:]
        assert log_start(cluster, victim) > 0, "it never had the log from its beginning"
        quorum.create(quorum.client(victim), "after")
        quorum.check_everything_is_there()


def directory_ids(cluster: OttlaCluster) -> dict[int, str]:
    """Of the voters, by node id."""
    return {int(voter["id"]): str(voter["directoryId"]) for voter in cluster.quorum()["currentVoters"]}


def has_replaced(cluster: OttlaCluster, index: int, former: dict[int, str]) -> dict[int, str] | None:
    """The voters, once a node is one under another directory."""
    now = directory_ids(cluster)
    return now if len(now) == len(former) and now.get(index + 1) not in (None, former[index + 1]) else None


def log_start(cluster: OttlaCluster, index: int) -> int:
    """The first offset of a node's metadata log, by its files."""
    return min(int(path.stem) for path in cluster.metadata_directory(index).glob("*.log"))


def test_a_suspended_node_does_no_harm_and_comes_back(tmp_path: Path) -> None:
    """The active controller first, then a follower, each until its session is over and the others have fenced it."""
    with OttlaCluster(tmp_path / "cluster", settings=PATIENT) as cluster:
        quorum = QuorumRun(cluster)
        quorum.create(quorum.client(), "before")
        for name, victim in (("leader", cluster.leader_index()), ("follower", None)):
            victim = (cluster.leader_index() + 1) % 3 if victim is None else victim
            others = [index for index in range(cluster.nodes) if index != victim]
            epoch, told_before = int(cluster.quorum()["leaderEpoch"]), len(cluster.log_text(victim))
            with cluster.paused(victim):
                admin = quorum.client(*others)
                quorum.create(admin, f"{name}-away")
                wait_for_brokers(admin, {index + 1 for index in others})
            quorum.create(quorum.client(victim), f"{name}-back")
            now = cluster.quorum()
            assert int(now["leaderEpoch"]) > epoch if name == "leader" else int(now["leaderEpoch"]) == epoch
            wait_for_brokers(admin, {1, 2, 3})
            if name == "leader":
                until(partial(has_told, cluster, victim, DEPOSED, told_before), PATIENCE_S)
            else:
                assert not has_told(cluster, victim, DEPOSED, told_before)
        quorum.check_everything_is_there()
        files = cluster.cut_equal_snapshots()
        assert len({hashlib.sha256(file.read_bytes()).hexdigest() for file in files}) == 1


def has_told(cluster: OttlaCluster, index: int, words: str, since: int) -> bool:
    """In its log, behind so many characters; the supervisor writes it a moment later than the node."""
    return words in cluster.log_text(index)[since:]


def wait_for_brokers(admin: AdminClient, wanted: set[int]) -> None:
    """Until these are the live ones."""
    until(lambda: set(admin.list_topics(timeout=20).brokers) == wanted, PATIENCE_S)


def test_faults_at_random_lose_nothing_and_leave_equal_nodes(tmp_path: Path) -> None:
    """A few of the faults that `chaos_run` goes on with for hours."""
    told = chaos_run.run(tmp_path, seed=53, turns=range(3))
    for fault in ("1 killed", "1 wiped", "1 suspended"):
        assert fault in told
    assert " create," in told
    assert told.endswith("0 bad")


def test_a_supervisor_that_is_killed_takes_its_nodes_with_it(tmp_path: Path) -> None:
    cluster = OttlaCluster(tmp_path / "cluster")
    quorum = QuorumRun(cluster)
    with cluster:
        quorum.create(quorum.client(), "kept")
        assert cluster.process is not None
        cluster.process.send_signal(signal.SIGKILL)
        cluster.process.wait()
    with cluster:  # at once: it waits for the nodes of before
        quorum.check_everything_is_there()
