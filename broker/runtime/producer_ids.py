"""Producer ids for this broker's clients, out of blocks that the controller grants."""

import asyncio
from typing import Final, Protocol

from broker.metadata.producer_ids import ProducerIdBlock
from broker.runtime.broker_lifecycle import BrokerLifecycle
from broker.runtime.controller_driver import ControllerDriver
from protocol.errors import ErrorCode, KafkaError

# The next block is fetched when this share of a block is used, so that clients rarely wait.
PREFETCH_SHARE: Final = 0.9
_NOTHING: Final = ProducerIdBlock(0, 0)


class BlockSource(Protocol):
    """Who grants blocks. Raises KafkaError."""

    async def allocate(self) -> ProducerIdBlock: ...


class LocalBlockSource:
    """The controller in this process."""

    def __init__(self, driver: ControllerDriver, lifecycle: BrokerLifecycle, broker_id: int) -> None:
        self._driver = driver
        self._lifecycle = lifecycle
        self._broker_id = broker_id

    async def allocate(self) -> ProducerIdBlock:
        epoch = self._lifecycle.epoch
        return await self._driver.submit(
            lambda controller, _now: controller.allocate_producer_ids(self._broker_id, epoch)
        )


class ProducerIds:
    """Hands out ids one by one. One request for a block is in flight at most; whoever needs its ids waits for it."""

    def __init__(self, source: BlockSource) -> None:
        self._source = source
        self._block = _NOTHING
        self._used = 0
        self._next: ProducerIdBlock | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def next_id(self) -> int:
        """A producer id that nobody else has or will have.

        Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS if no block can be had now; clients then ask again.
        """
        while (producer_id := self._take()) is None:
            try:
                await asyncio.shield(self._fetch())
            except KafkaError as error:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
        return producer_id

    def _take(self) -> int | None:
        if self._used >= self._block.size:
            if self._next is None:
                return None
            self._block, self._used, self._next = self._next, 0, None
        self._used += 1
        if self._used >= self._block.size * PREFETCH_SHARE and self._next is None:
            self._fetch()
        return self._block.first + self._used - 1

    def _fetch(self) -> "asyncio.Task[None]":
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.get_running_loop().create_task(self._fetch_next())
            self._fetching.add_done_callback(_consume)
        return self._fetching

    async def _fetch_next(self) -> None:
        self._next = await self._source.allocate()


def _consume(task: "asyncio.Task[None]") -> None:
    """A prefetch that fails is tried again when its ids are needed; who waits for it is told by `await`."""
    if not task.cancelled():
        task.exception()
