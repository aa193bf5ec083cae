"""Answers of the controller that wait for the logs they need (`broker.runtime.hosting_gateway`)."""

import asyncio
from typing import Any, cast

from broker.runtime.controller_driver import ControllerDriver
from broker.runtime.hosting_gateway import HostingGateway
from broker.runtime.partitions import Partitions


class FakeController:
    """Answers every command at once."""

    def submit(self, command: object) -> "asyncio.Future[str]":
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        answer.set_result("created")
        return answer


class FakePartitions:
    """Creates logs for as long as the event is not set."""

    def __init__(self) -> None:
        self.created = asyncio.Event()

    async def wait_created(self) -> None:
        await self.created.wait()


def gateway(partitions: FakePartitions, wait_max_ms: int) -> HostingGateway:
    return HostingGateway(
        cast(ControllerDriver, FakeController()), cast(Partitions, partitions), wait_max_ms=wait_max_ms
    )


def command(*_arguments: Any) -> Any:
    raise AssertionError("the fake controller runs no command")


async def test_the_answer_waits_for_the_logs() -> None:
    partitions = FakePartitions()
    answer = asyncio.ensure_future(gateway(partitions, 60_000).submit(command))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not answer.done()
    partitions.created.set()
    assert await answer == "created"


async def test_but_not_for_ever() -> None:
    assert await gateway(FakePartitions(), 0).submit(command) == "created"
