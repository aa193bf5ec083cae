"""A three-node cluster whose nodes are killed, wiped, suspended and stopped one by one."""

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

TIMEOUT_S = 60
DEPOSED = "This node is not the active controller any more"
LONGEST_GAP_S = 30
"""Upper bound that a busy machine stays below, and that a wait for an absent node exceeds."""
# Snapshots are written after few records, and the log is cleaned as soon as a snapshot covers it.
TRIMMING = {
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "internal.metadata.log.segment.bytes": "2048",
    "metadata.max.retention.bytes": "1",
    "metadata.start.offset.lag.time.max.ms": "1000",
}
# Only a suspended node is silent for this long, even on a busy machine.
PATIENT = {
    "metadata.max.idle.interval.ms": "0",
    "controller.quorum.fetch.timeout.ms": "6000",
    "controller.quorum.election.timeout.ms": "3000",
}


def test_topic_creation_resumes_after_each_kill(tmp_path: Path) -> None:
    """Kill the active controller and other nodes in turn, and finally all at once."""
    with OttlaCluster(tmp_path / "cluster") as cluster:
        quorum = run(cluster, kills=4)
    assert max(quorum.gaps_s) <= LONGEST_GAP_S, quorum.gaps_s


def test_clean_stop_is_fast_and_keeps_all_topics(tmp_path: Path) -> None:
    cluster = OttlaCluster(tmp_path / "cluster")
    quorum = QuorumRun(cluster)
    for turn in range(3):
        cluster.start()
        quorum.check_topics()
        quorum.create(quorum.client(), f"turn-{turn}")
        begun = time.monotonic()
        assert cluster.stop() == 0
        assert time.monotonic() - begun < LONGEST_GAP_S
        for index in range(cluster.nodes):
            assert (cluster.node_directory(index) / "data" / ".kafka_cleanshutdown").exists()


def test_nodes_stopped_one_by_one_keep_all_topics(tmp_path: Path) -> None:
    cluster = OttlaCluster(tmp_path / "cluster", restart=False)
    quorum = QuorumRun(cluster)
    with cluster:
        quorum.create(quorum.client(), "before")
        first = cluster.leader_index()
        others = [index for index in range(cluster.nodes) if index != first]
        assert cluster.terminate(first) < LONGEST_GAP_S
        assert quorum.create(quorum.client(*others), "without-one") < LONGEST_GAP_S
        assert cluster.terminate(others[0]) < LONGEST_GAP_S
        assert cluster.terminate(others[1]) < LONGEST_GAP_S, "a stop waits for a controller although there is no quorum"
    with cluster:
        quorum.check_topics()
        quorum.create(quorum.client(), "after")


def test_wiped_node_fetches_snapshot_and_rejoins_as_voter(tmp_path: Path) -> None:
    with OttlaCluster(tmp_path / "cluster", settings=TRIMMING) as cluster:
        quorum = QuorumRun(cluster)
        admin = quorum.client()
        for number in range(40):
            quorum.create(admin, f"before-{number}")
        victim = (cluster.leader_index() + 1) % 3
        former = directory_ids(cluster)
        for index in range(3):
            cluster.cut_snapshot(index)
        until(lambda: log_start(cluster, cluster.leader_index()) > 0, TIMEOUT_S)

        log_before = len(cluster.log_text(victim))
        cluster.wait_ready(victim, cluster.wipe(victim))
        until(lambda: victim + 1 in directory_ids(cluster), TIMEOUT_S)
        now = until(lambda: has_replaced(cluster, victim, former), TIMEOUT_S)
        assert {key: now[key] for key in now if key != victim + 1} == {
            key: former[key] for key in former if key != victim + 1
        }
        assert "Loaded a metadata snapshot" in cluster.log_text(victim)[log_before:]
        assert log_start(cluster, victim) > 0, "the replica replayed the log from its beginning"
        quorum.create(quorum.client(victim), "after")
        quorum.check_topics()


def directory_ids(cluster: OttlaCluster) -> dict[int, str]:
    """Return the voters' directory ids by node id."""
    return {int(voter["id"]): str(voter["directoryId"]) for voter in cluster.quorum()["currentVoters"]}


def has_replaced(cluster: OttlaCluster, index: int, former: dict[int, str]) -> dict[int, str] | None:
    """Return the voters' directory ids once the node is a voter under a new one."""
    now = directory_ids(cluster)
    return now if len(now) == len(former) and now.get(index + 1) not in (None, former[index + 1]) else None


def log_start(cluster: OttlaCluster, index: int) -> int:
    """Return the first offset of a node's metadata log, taken from its file names."""
    return min(int(path.stem) for path in cluster.metadata_directory(index).glob("*.log"))


def test_suspended_node_is_fenced_and_rejoins(tmp_path: Path) -> None:
    """Suspend the active controller, then a follower, each until its session expires and the brokers fence it."""
    with OttlaCluster(tmp_path / "cluster", settings=PATIENT) as cluster:
        quorum = QuorumRun(cluster)
        quorum.create(quorum.client(), "before")
        for name, victim in (("leader", cluster.leader_index()), ("follower", None)):
            victim = (cluster.leader_index() + 1) % 3 if victim is None else victim
            others = [index for index in range(cluster.nodes) if index != victim]
            epoch, log_before = int(cluster.quorum()["leaderEpoch"]), len(cluster.log_text(victim))
            with cluster.paused(victim):
                admin = quorum.client(*others)
                quorum.create(admin, f"{name}-away")
                wait_for_brokers(admin, {index + 1 for index in others})
            quorum.create(quorum.client(victim), f"{name}-back")
            now = cluster.quorum()
            assert int(now["leaderEpoch"]) > epoch if name == "leader" else int(now["leaderEpoch"]) == epoch
            wait_for_brokers(admin, {1, 2, 3})
            if name == "leader":
                until(partial(has_logged, cluster, victim, DEPOSED, log_before), TIMEOUT_S)
            else:
                assert not has_logged(cluster, victim, DEPOSED, log_before)
        quorum.check_topics()
        files = cluster.cut_equal_snapshots()
        assert len({hashlib.sha256(file.read_bytes()).hexdigest() for file in files}) == 1


def has_logged(cluster: OttlaCluster, index: int, words: str, since: int) -> bool:
    """Whether the node's log contains the text after the given position. The supervisor writes the log with a delay."""
    return words in cluster.log_text(index)[since:]


def wait_for_brokers(admin: AdminClient, wanted: set[int]) -> None:
    """Wait until exactly these brokers are live."""
    until(lambda: set(admin.list_topics(timeout=20).brokers) == wanted, TIMEOUT_S)


def test_random_faults_lose_no_topic_and_nodes_converge(tmp_path: Path) -> None:
    """Run a few of the faults that `chaos_run` injects for hours."""
    summary = chaos_run.run(tmp_path, seed=53, turns=range(3))
    for fault in ("1 killed", "1 wiped", "1 suspended"):
        assert fault in summary
    assert " create," in summary
    assert summary.endswith("0 bad")


def test_killed_supervisor_takes_its_nodes_down(tmp_path: Path) -> None:
    cluster = OttlaCluster(tmp_path / "cluster")
    quorum = QuorumRun(cluster)
    with cluster:
        quorum.create(quorum.client(), "kept")
        assert cluster.process is not None
        cluster.process.send_signal(signal.SIGKILL)
        cluster.process.wait()
    with cluster:  # started at once: it waits for the previous nodes to end
        quorum.check_topics()
