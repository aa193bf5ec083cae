"""A rolling restart of all nodes of a cluster under client load."""

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.clients.partition_states import until, wait_for_state, wait_until_whole
from tests.support.clients.replicated_load import ReplicatedLoad, create_topic
from tests.support.processes.ottla_cluster import OttlaCluster

pytestmark = pytest.mark.integration


class Restart(NamedTuple):
    """Durations of the steps of one restart, in seconds."""

    exited: float
    serves: float
    whole: float


def restart(cluster: OttlaCluster, index: int) -> Restart:
    """Stop a node cleanly and wait until the supervisor has restarted it and all partitions are fully replicated."""
    since, pid, begun = len(cluster.lines), cluster.pid(index), time.monotonic()
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    cluster.wait_line(lambda line: line.startswith(f"node {index + 1} has exited"), 30, since)
    exited = time.monotonic()
    cluster.wait_ready(index, since)
    serves = time.monotonic()
    wait_until_whole(cluster.bootstrap, "t", "__consumer_offsets")
    return Restart(exited - begun, serves - exited, time.monotonic() - serves)


def test_rolling_restart_interrupts_no_client(tmp_path: Path) -> None:
    settings = {"min.insync.replicas": "2", "group.initial.rebalance.delay.ms": "0"}
    with OttlaCluster(tmp_path / "cluster", settings=settings) as cluster:
        create_topic(cluster.bootstrap, "t", 6)
        with ReplicatedLoad(cluster.bootstrap, "t") as load:
            until(lambda: load.ledger.consumed_count > 100)
            restarts = [restart(cluster, index) for index in range(cluster.nodes)]
        for took in restarts:
            print(f"exited {took.exited:.2f} s, serves {took.serves:.2f} s, in sync {took.whole:.2f} s")
        print(f"{load.ledger.acknowledged_count} records, slowest {load.ledger.longest_wait_s:.3f} s")
        load.ledger.check()
        offsets = wait_for_state(cluster.bootstrap, "__consumer_offsets", lambda state: state.is_whole)
        assert [len(state.isr) for state in offsets.values()] == [3] * 50
        assert "proposing to shrink the ISR" not in "".join(map(cluster.log_text, range(cluster.nodes)))
