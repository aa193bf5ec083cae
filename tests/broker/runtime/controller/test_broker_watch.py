"""Detection of ended broker processes by the controller."""

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any

import pytest

from broker.metadata.image.cluster_image import RegisteredEndpoint
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE
from broker.net.request import ConnectionInfo
from broker.runtime.controller import broker_watch
from broker.runtime.controller.broker_watch import BrokerWatch, ProbeResult, probe
from broker.runtime.controller.driver import Command
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages.metadata_records import (
    BrokerEndpoint,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
)
from protocol.primitives import Uuid
from tests.support.processes.closed_port import closed_port

HERE = RegisteredEndpoint("broker-2", 9092, 0)
EPOCH = 7


class FenceRecorder:
    """A controller that records fence commands."""

    def __init__(self) -> None:
        self.is_active = True
        self.fenced: list[tuple[int, int]] = []

    def submit(self, command: Command[None]) -> "asyncio.Future[None]":
        command(self, 0)  # type: ignore[arg-type]  # implements one command only
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def fence_terminated_broker(self, broker_id: int, epoch: int) -> None:
        self.fenced.append((broker_id, epoch))


class BrokerWatchHarness:
    """Broker 2, registered and unfenced; `answers` are the probe results, the last one repeated."""

    def __init__(self, *answers: ProbeResult) -> None:
        self.controller = FenceRecorder()
        self.answers = list(answers)
        self.tasks: list[asyncio.Task[None]] = []
        self.is_settling = True
        self.image = EMPTY_IMAGE
        self.watch = BrokerWatch(1, "INTERNAL", self.controller, self.probe, spawn=self.spawn)

    async def probe(self, endpoint: RegisteredEndpoint) -> ProbeResult:
        assert endpoint == HERE
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.append(task)
        return task

    async def settle(self) -> list[tuple[int, int]]:
        """Return the fence commands once all tasks are done."""
        while self.tasks:
            await self.tasks.pop(0)
        return self.controller.fenced

    async def publish(self, *records: Any) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(self.image.provenance)
        self.watch.on_metadata(delta, self.image)
        if self.is_settling:
            await self.settle()

    async def introduce(self, epoch: int = EPOCH) -> None:
        await self.register(epoch)
        await self.unfence(epoch)

    async def register(self, epoch: int = EPOCH) -> None:
        endpoints = [BrokerEndpoint("EXTERNAL", "elsewhere", 1, 0), BrokerEndpoint("INTERNAL", *HERE)]
        record = RegisterBrokerRecord(
            broker_id=2, incarnation_id=Uuid(bytes(16)), broker_epoch=epoch, end_points=endpoints, fenced=True
        )
        await self.publish(record)

    async def unfence(self, epoch: int = EPOCH) -> None:
        await self.publish(UnfenceBrokerRecord(id=2, epoch=epoch))

    def heartbeat(self, connection: ConnectionInfo | None = None) -> ConnectionInfo:
        connection = connection or ConnectionInfo("c", "CONTROLLER", "broker-2", 1)
        self.watch.on_heartbeat(BrokerId(2), BrokerEpoch(EPOCH), connection)
        return connection


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_watch, "CHECK_INTERVAL_S", 0)
    monkeypatch.setattr(broker_watch, "FIRST_REACHABILITY_PAUSE_S", 0)


async def test_broker_with_closed_connection_and_refusing_listener_is_fenced() -> None:
    harness = BrokerWatchHarness(ProbeResult.LISTENS, ProbeResult.REFUSED)
    await harness.introduce()
    harness.heartbeat().closed()
    assert await harness.settle() == [(2, EPOCH)]


async def test_process_that_ends_before_its_second_heartbeat_is_fenced() -> None:
    """The first heartbeat of a registration arrives while the broker is fenced, and lets it be unfenced."""
    harness = BrokerWatchHarness(ProbeResult.LISTENS, ProbeResult.REFUSED)
    await harness.register()
    connection = harness.heartbeat()
    await harness.unfence()
    connection.closed()
    assert await harness.settle() == [(2, EPOCH)]


async def test_ending_process_may_accept_for_a_moment() -> None:
    harness = BrokerWatchHarness(
        ProbeResult.LISTENS, ProbeResult.LISTENS, ProbeResult.REFUSED, ProbeResult.LISTENS, ProbeResult.REFUSED
    )
    await harness.introduce()
    harness.heartbeat().closed()
    assert await harness.settle() == [(2, EPOCH)]


@pytest.mark.parametrize(
    "answers", [(ProbeResult.LISTENS,), (ProbeResult.UNKNOWN,), (ProbeResult.REFUSED, ProbeResult.LISTENS)]
)
async def test_possibly_live_broker_is_not_fenced(answers: tuple[ProbeResult, ...]) -> None:
    harness = BrokerWatchHarness(ProbeResult.LISTENS, *answers)
    await harness.introduce()
    harness.heartbeat().closed()
    assert await harness.settle() == []


@pytest.mark.parametrize("first", [ProbeResult.REFUSED, ProbeResult.UNKNOWN])
async def test_refusal_of_an_unproven_address_is_ignored(first: ProbeResult) -> None:
    harness = BrokerWatchHarness(first, ProbeResult.REFUSED)
    await harness.introduce()
    harness.heartbeat().closed()
    assert await harness.settle() == []


@pytest.mark.parametrize("first", [ProbeResult.REFUSED, ProbeResult.UNKNOWN])
async def test_address_may_become_reachable_later(first: ProbeResult) -> None:
    harness = BrokerWatchHarness(first, first, ProbeResult.LISTENS, ProbeResult.REFUSED)
    await harness.introduce()
    harness.heartbeat().closed()
    assert await harness.settle() == [(2, EPOCH)]


async def test_probes_of_a_previous_incarnation_stop() -> None:
    harness = BrokerWatchHarness(*[ProbeResult.REFUSED] * 9)
    harness.is_settling = False
    await harness.introduce()
    first = harness.tasks[0]
    await harness.publish(FenceBrokerRecord(id=2, epoch=EPOCH))
    await first
    assert len(harness.answers) == 8


async def test_broker_with_another_heartbeat_connection_is_not_fenced() -> None:
    harness = BrokerWatchHarness(ProbeResult.LISTENS, ProbeResult.REFUSED)
    await harness.introduce()
    first = harness.heartbeat()
    harness.heartbeat()
    first.closed()
    assert await harness.settle() == []


async def test_broker_that_reconnects_during_probes_is_not_fenced() -> None:
    harness = BrokerWatchHarness(ProbeResult.LISTENS, ProbeResult.REFUSED)
    await harness.introduce()
    harness.heartbeat().closed()
    harness.heartbeat()
    assert await harness.settle() == []


async def test_connection_is_watched_once() -> None:
    harness = BrokerWatchHarness(ProbeResult.LISTENS, ProbeResult.REFUSED)
    await harness.introduce()
    connection = harness.heartbeat()
    harness.heartbeat(connection)
    connection.closed()
    connection.closed()
    assert await harness.settle() == [(2, EPOCH)]


async def test_new_active_controller_probes_all_unfenced_brokers() -> None:
    harness = BrokerWatchHarness(ProbeResult.LISTENS, ProbeResult.REFUSED)
    await harness.introduce()
    harness.controller.is_active = False
    harness.watch.on_active()
    assert await harness.settle() == []
    harness.controller.is_active = True
    harness.watch.on_active()
    assert await harness.settle() == [(2, EPOCH)]


async def test_fenced_broker_is_not_watched() -> None:
    harness = BrokerWatchHarness(ProbeResult.LISTENS, ProbeResult.REFUSED)
    await harness.introduce()
    connection = harness.heartbeat()
    await harness.publish(FenceBrokerRecord(id=2, epoch=EPOCH))
    connection.closed()
    harness.watch.on_active()
    assert await harness.settle() == []


async def test_closed_connection_of_a_previous_incarnation_is_ignored() -> None:
    harness = BrokerWatchHarness(ProbeResult.LISTENS, ProbeResult.LISTENS, ProbeResult.REFUSED)
    await harness.introduce()
    connection = harness.heartbeat()
    await harness.introduce(EPOCH + 1)
    connection.closed()
    assert await harness.settle() == []


async def test_probe_distinguishes_listening_refused_and_unknown() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = RegisteredEndpoint("127.0.0.1", server.getsockname()[1], 0)
        assert await probe(place, timeout_s=60) is ProbeResult.LISTENS
    with closed_port() as port:
        assert await probe(place._replace(port=port), timeout_s=60) is ProbeResult.REFUSED
    assert await probe(place._replace(port=99_999), timeout_s=5) is ProbeResult.UNKNOWN
