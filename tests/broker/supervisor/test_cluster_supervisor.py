"""The supervisors of all nodes: stopped by a signal, or by one node that does not start."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.supervisor.cluster_supervisor import STOP_SIGNALS, ClusterSupervisor
from broker.supervisor.layout import LocalNode
from broker.supervisor.node_supervisor import NodeDidNotStart
from broker.supervisor.status_report import StatusReport
from tests.broker.supervisor.fakes import FakeProcess, a_node, nothing_to_prepare
from tests.support.fakes.fast_forward_loop import run_fast


class Cluster:
    """Three nodes with directories; `failing` is the node that does not start."""

    def __init__(self, root: Path, failing: int | None = None) -> None:
        self.nodes = [a_node(root / str(node_id), node_id) for node_id in (1, 2, 3)]
        for node in self.nodes:
            node.directory.mkdir()
        self.lines: list[str] = []
        self.all_ready = asyncio.Event()
        self.processes: dict[int, FakeProcess] = {}
        self._failing = failing

    async def spawn(self, command: Sequence[str]) -> FakeProcess:
        node_id = int(command[0].removeprefix("n"))
        if node_id == self._failing:
            self.processes[node_id] = FakeProcess(node_id, b"Error: no room.\n", exit_code=1)
        else:
            self.processes[node_id] = FakeProcess(node_id, b"[KafkaServer id=%d] started\n" % node_id)
        return self.processes[node_id]

    def say(self, line: str) -> None:
        self.lines.append(line)
        if line.startswith("bootstrap"):
            self.all_ready.set()

    def supervisor(self) -> ClusterSupervisor:
        report = StatusReport(self.nodes, self.say)
        return ClusterSupervisor(self.nodes, report, nothing_to_prepare, restart=True, spawn_process=self.spawn)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_signal_stops_all_nodes(tmp_path: Path, number: signal.Signals) -> None:
    cluster = Cluster(tmp_path)

    async def main() -> None:
        supervisor = cluster.supervisor()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(supervisor.run())
            await cluster.all_ready.wait()
            os.kill(os.getpid(), number)

    run_fast(main())
    assert [process.signals for process in cluster.processes.values()] == [["TERM"]] * 3
    assert cluster.lines[-1] == "bootstrap server: 127.0.0.1:9092,127.0.0.1:9102,127.0.0.1:9112"


def test_failed_start_of_a_node_stops_the_others(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, failing=2)

    async def main() -> None:
        await cluster.supervisor().run()

    with pytest.raises(NodeDidNotStart, match=r"node 2 did not start: no room\."):
        run_fast(main())
    assert [cluster.processes[node_id].signals for node_id in (1, 3)] == [["TERM"]] * 2
    assert not any("bootstrap" in line for line in cluster.lines)


def test_hangup_restarts_the_nodes_in_turn_where_it_is_asked_for(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    settled: list[int] = []
    first: dict[int, FakeProcess] = {}
    supervisor: ClusterSupervisor

    async def settle(node: LocalNode) -> None:
        running = [id for id, process in cluster.processes.items() if process is not first[id]]
        assert running == sorted([*settled, node.id])  # no further node has been stopped yet
        settled.append(node.id)
        if len(settled) == len(cluster.nodes):
            supervisor.stop()

    async def main() -> None:
        nonlocal supervisor
        report = StatusReport(cluster.nodes, cluster.say)
        supervisor = ClusterSupervisor(
            cluster.nodes, report, nothing_to_prepare, restart=True, spawn_process=cluster.spawn, settle=settle
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(supervisor.run())
            await cluster.all_ready.wait()
            first.update(cluster.processes)
            os.kill(os.getpid(), signal.SIGHUP)

    run_fast(main())
    assert settled == [1, 2, 3]
    assert [process.signals for process in first.values()] == [["TERM"]] * 3
