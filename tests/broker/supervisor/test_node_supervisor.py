"""The supervisor of one node, with fake processes and a manual clock."""

import asyncio
import dataclasses
import itertools
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.supervisor.layout import LocalNode
from broker.supervisor.node_supervisor import STOP_TIMEOUT_S, NodeDidNotStart, NodeSupervisor, NotPrepared, Prepare
from broker.supervisor.restart_backoff import FIRST_DELAY_S, MAX_DELAY_S
from broker.supervisor.status_report import StatusReport
from tests.broker.supervisor.fakes import FakeProcess, FakeSpawner, a_node, nothing_to_prepare
from tests.support.fakes.fast_forward_loop import run_fast

SERVING: dict[str, object] = {"output": b"[KafkaServer id=1] started took_ms=7\n"}
FAILING: dict[str, object] = {"output": b"Error: the port is taken.\n", "exit_code": 1}
DYING: dict[str, object] = {**SERVING, "exit_code": -9}

Play = Callable[[NodeSupervisor, FakeSpawner], Awaitable[None]]


def supervise(
    directory: Path, spawner: FakeSpawner, play: Play, *, restart: bool = True, prepare: Prepare = nothing_to_prepare
) -> list[str]:
    """Supervise a node while `play` runs; return the status lines."""
    lines: list[str] = []

    async def main() -> None:
        node = a_node(directory)
        node_supervisor = NodeSupervisor(
            node, spawner.spawn, StatusReport([node], lines.append), prepare, restart=restart
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(node_supervisor.run())
            await play(node_supervisor, spawner)

    run_fast(main())
    return lines


async def settle() -> None:
    """Run all callbacks that need no time."""
    for _ in range(20):
        await asyncio.sleep(0)


async def stop_soon(node_supervisor: NodeSupervisor, _spawner: FakeSpawner) -> None:
    await settle()
    node_supervisor.stop()


def test_serving_node_is_reported_and_stopped_by_sigterm(tmp_path: Path) -> None:
    spawner = FakeSpawner(SERVING)
    lines = supervise(tmp_path, spawner, stop_soon)
    assert lines == [
        "node 1  127.0.0.1:9092  http://127.0.0.1:9644  pid 100  ready in 0.00 s",
        "bootstrap server: 127.0.0.1:9092",
    ]
    assert spawner.processes[0].signals == ["TERM"]


def test_picked_http_port_is_reported_at_every_start(tmp_path: Path) -> None:
    lines: list[str] = []
    plays: list[dict[str, object]] = [
        {"output": b"HTTP is served url=http://127.0.0.1:%d\n[KafkaServer id=1] started\n" % port, "exit_code": code}
        for port, code in ((40_001, -9), (40_002, None))
    ]
    spawner = FakeSpawner(*plays)

    async def main() -> None:
        node = dataclasses.replace(a_node(tmp_path), http_url=None)
        node_supervisor = NodeSupervisor(
            node, spawner.spawn, StatusReport([node], lines.append), nothing_to_prepare, restart=True
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(node_supervisor.run())
            await asyncio.sleep(2 * FIRST_DELAY_S)
            node_supervisor.stop()

    run_fast(main())
    assert [line.split()[3] for line in lines if " ready " in line] == [
        "http://127.0.0.1:40001",
        "http://127.0.0.1:40002",
    ]


def test_pid_file_exists_while_the_process_runs(tmp_path: Path) -> None:
    async def play(node_supervisor: NodeSupervisor, _spawner: FakeSpawner) -> None:
        await settle()
        assert (tmp_path / "ottla.pid").read_text() == "100\n"
        node_supervisor.stop()

    supervise(tmp_path, FakeSpawner(SERVING), play)
    assert [path.name for path in tmp_path.iterdir()] == ["ottla.log"]


def test_output_is_written_to_the_nodes_log(tmp_path: Path) -> None:
    supervise(tmp_path, FakeSpawner(SERVING), stop_soon)
    assert (tmp_path / "ottla.log").read_bytes() == SERVING["output"]


def test_killed_node_is_restarted(tmp_path: Path) -> None:
    async def play(node_supervisor: NodeSupervisor, spawner: FakeSpawner) -> None:
        await settle()
        spawner.processes[0].exit(-signal.SIGKILL)
        await asyncio.sleep(2 * FIRST_DELAY_S)
        node_supervisor.stop()

    lines = supervise(tmp_path, FakeSpawner(SERVING), play)
    assert lines[2:] == [
        "node 1 has exited (SIGKILL) and is restarted in 0.1 s",
        "node 1  127.0.0.1:9092  http://127.0.0.1:9644  pid 101  ready again in 0.00 s",
    ]


def test_restarts_of_a_failing_node_back_off(tmp_path: Path) -> None:
    async def play(node_supervisor: NodeSupervisor, _spawner: FakeSpawner) -> None:
        await asyncio.sleep(100)
        node_supervisor.stop()

    spawner = FakeSpawner(DYING)
    supervise(tmp_path, spawner, play)
    moments = [moment for moment, _ in spawner.started]
    pauses = [round(b - a, 3) for a, b in itertools.pairwise(moments)]
    assert pauses[:3] == [FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S]
    assert pauses[-1] == MAX_DELAY_S
    assert len(moments) < 20


def test_node_is_not_restarted_where_restarts_are_off(tmp_path: Path) -> None:
    async def play(_keeper: NodeSupervisor, spawner: FakeSpawner) -> None:
        await settle()
        spawner.processes[0].exit(-signal.SIGKILL)

    spawner = FakeSpawner(SERVING)
    lines = supervise(tmp_path, spawner, play, restart=False)
    assert "is not restarted" in lines[-1]
    assert len(spawner.started) == 1


@pytest.mark.parametrize(
    ("play", "sentence"),
    [
        (FAILING, "node 1 did not start: the port is taken."),
        ({"exit_code": 0}, "node 1 did not start: no output."),
        (OSError(12, "Cannot allocate memory"), "node 1 did not start: Cannot allocate memory."),
    ],
)
def test_failed_first_start_is_not_repeated(tmp_path: Path, play: dict[str, object] | OSError, sentence: str) -> None:
    spawner = FakeSpawner(play)

    async def main() -> None:
        node = a_node(tmp_path)
        await NodeSupervisor(node, spawner.spawn, StatusReport([node], print), nothing_to_prepare, restart=True).run()

    with pytest.raises(NodeDidNotStart) as failed:
        run_fast(main())
    assert str(failed.value) == sentence
    assert len(spawner.started) <= 1


def test_failed_later_start_is_repeated(tmp_path: Path) -> None:
    async def play(node_supervisor: NodeSupervisor, _spawner: FakeSpawner) -> None:
        await asyncio.sleep(2)
        node_supervisor.stop()

    lines = supervise(tmp_path, FakeSpawner(DYING, FAILING, OSError(12, "Cannot allocate memory"), SERVING), play)
    assert [line.partition(" and is")[0] for line in lines if "exited" in line] == [
        "node 1 has exited (SIGKILL)",
        "node 1 has exited (code 1)",
        "node 1 has exited (not started)",
    ]
    assert "ready again" in lines[-1]


def test_node_killed_before_serving_is_restarted(tmp_path: Path) -> None:
    async def play(node_supervisor: NodeSupervisor, _spawner: FakeSpawner) -> None:
        await asyncio.sleep(1)
        node_supervisor.stop()

    lines = supervise(tmp_path, FakeSpawner({"exit_code": -9}, SERVING), play)
    assert "pid 101  ready in" in lines[1]


def test_node_is_killed_after_the_stop_timeout(tmp_path: Path) -> None:
    spawner = FakeSpawner({**SERVING, "deaf": True})
    spent: list[float] = []

    async def play(node_supervisor: NodeSupervisor, _spawner: FakeSpawner) -> None:
        await settle()
        began = asyncio.get_running_loop().time()
        node_supervisor.stop()
        await spawner.processes[0].wait()
        spent.append(asyncio.get_running_loop().time() - began)

    supervise(tmp_path, spawner, play)
    assert spawner.processes[0].signals == ["TERM", "KILL"]
    assert spent == [pytest.approx(STOP_TIMEOUT_S)]


def test_node_is_prepared_before_every_start(tmp_path: Path) -> None:
    prepared: list[int] = []

    def prepare(node: LocalNode) -> None:
        prepared.append(node.id)
        if len(prepared) == 2:
            raise NotPrepared("the disk has failed.")

    async def play(node_supervisor: NodeSupervisor, spawner: FakeSpawner) -> None:
        await settle()
        spawner.processes[0].exit(-signal.SIGKILL)
        await asyncio.sleep(2)
        node_supervisor.stop()

    lines = supervise(tmp_path, FakeSpawner(SERVING), play, prepare=prepare)
    assert prepared == [1, 1, 1]
    assert "node 1 has exited (not started) and is restarted in 0.2 s: the disk has failed." in lines


def test_failed_first_preparation_is_not_repeated(tmp_path: Path) -> None:
    def prepare(_node: LocalNode) -> None:
        raise NotPrepared("it belongs to another cluster.")

    async def main() -> None:
        node = a_node(tmp_path)
        await NodeSupervisor(node, FakeSpawner(SERVING).spawn, StatusReport([node], print), prepare, restart=True).run()

    with pytest.raises(NodeDidNotStart, match="another cluster"):
        run_fast(main())


def test_active_controller_of_several_nodes_is_reported_once_per_term(tmp_path: Path) -> None:
    lines: list[str] = []
    nodes = [a_node(tmp_path, 1), a_node(tmp_path, 2)]
    report = StatusReport(nodes, lines.append)
    for node in (nodes[0], nodes[0], nodes[1]):
        report.leads(node)
    assert lines == ["node 1 is the active controller", "node 2 is the active controller"]


def test_active_controller_of_a_single_node_is_not_reported(tmp_path: Path) -> None:
    leading: dict[str, object] = {"output": b"This node is the active controller\n[KafkaServer id=1] started\n"}
    lines = supervise(tmp_path, FakeSpawner(leading), stop_soon)
    assert not any("controller" in line for line in lines)


def test_stop_during_back_off_starts_no_process(tmp_path: Path) -> None:
    async def play(node_supervisor: NodeSupervisor, spawner: FakeSpawner) -> None:
        await settle()
        spawner.processes[0].exit(1)
        await settle()
        node_supervisor.stop()

    spawner = FakeSpawner(SERVING)
    supervise(tmp_path, spawner, play)
    assert len(spawner.started) == 1


def test_stop_during_process_creation_stops_the_process(tmp_path: Path) -> None:
    spawner = FakeSpawner(SERVING)

    async def main() -> None:
        node = a_node(tmp_path)

        async def stop_then_spawn(command: object) -> FakeProcess:
            node_supervisor.stop()
            return await spawner.spawn(())

        node_supervisor = NodeSupervisor(
            node, stop_then_spawn, StatusReport([node], print), nothing_to_prepare, restart=True
        )
        await node_supervisor.run()

    run_fast(main())
    assert spawner.processes[0].signals == ["TERM"]


def test_unwritable_pid_file_is_reported_without_stopping_the_node(tmp_path: Path) -> None:
    lines = supervise(tmp_path / "missing", FakeSpawner(SERVING), stop_soon)
    assert "cannot write" in lines[0]
    assert "ready in" in lines[1]


def test_restart_on_request_waits_for_the_successor(tmp_path: Path) -> None:
    spawner = FakeSpawner(SERVING)
    pids: list[int] = []

    async def play(node_supervisor: NodeSupervisor, spawner: FakeSpawner) -> None:
        await settle()
        await node_supervisor.restart()
        pids.extend(process.pid for process in spawner.processes)
        node_supervisor.stop()

    lines = supervise(tmp_path, spawner, play)
    assert pids == [100, 101]
    assert spawner.processes[0].signals == ["TERM"]
    assert not [line for line in lines if "has exited" in line]
    assert lines[-1].endswith("pid 101  ready again in 0.00 s")


def test_deaf_process_is_killed_by_a_restart(tmp_path: Path) -> None:
    spawner = FakeSpawner({**SERVING, "deaf": True}, SERVING)

    async def play(node_supervisor: NodeSupervisor, spawner: FakeSpawner) -> None:
        await settle()
        began_s = asyncio.get_running_loop().time()
        await node_supervisor.restart()
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(STOP_TIMEOUT_S)
        node_supervisor.stop()

    supervise(tmp_path, spawner, play)
    assert [process.signals for process in spawner.processes] == [["TERM", "KILL"], ["TERM"]]


def test_stop_ends_a_restart_under_way(tmp_path: Path) -> None:
    spawner = FakeSpawner({**SERVING, "deaf": True})

    async def play(node_supervisor: NodeSupervisor, spawner: FakeSpawner) -> None:
        await settle()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(node_supervisor.restart())
            await settle()
            node_supervisor.stop()

    supervise(tmp_path, spawner, play)
    assert len(spawner.started) == 1
