"""Producer ids for this broker's clients, from blocks that the controller allocates (KIP-730)."""

import asyncio
from collections.abc import Awaitable
from typing import Final, Protocol

from broker.metadata.controller.producer_ids import ProducerIdBlock
from broker.runtime.controller.broker_lifecycle import RegisteredBroker
from broker.runtime.controller.controller_router import ControllerUnavailable
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

# Fetch the next block when this share of a block is used, so that clients rarely wait.
PREFETCH_SHARE: Final = 0.9
_NOTHING: Final = ProducerIdBlock(0, 0)


class BlockSource(Protocol):
    """A source of blocks. Raises KafkaError."""

    async def allocate(self) -> ProducerIdBlock: ...


class AllocationChannel(Protocol):
    """AllocateProducerIds requests to the active controller. Raises KafkaError, ControllerUnavailable."""

    def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> Awaitable[AllocateProducerIdsResponse]: ...


class ControllerBlocks:
    """Blocks allocated by the active controller."""

    def __init__(self, channel: AllocationChannel, broker: RegisteredBroker, broker_id: int) -> None:
        self._channel = channel
        self._broker = broker
        self._broker_id = broker_id

    async def allocate(self) -> ProducerIdBlock:
        request = AllocateProducerIdsRequest(self._broker_id, self._broker.epoch)
        try:
            granted = await self._channel.allocate_producer_ids(request)
        except ControllerUnavailable as error:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
        return ProducerIdBlock(granted.producer_id_start, granted.producer_id_len)


class ProducerIds:
    """Allocates ids one by one. At most one request for a block is in flight; callers that need its ids wait."""

    def __init__(self, source: BlockSource) -> None:
        self._source = source
        self._block = _NOTHING
        self._used = 0
        self._next: ProducerIdBlock | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def next_id(self) -> int:
        """Return a producer id that is unique in the cluster.

        Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS if no block is available; clients retry.
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
    """Consume the exception of a prefetch: a caller that needs the ids retries and receives the error by `await`."""
    if not task.cancelled():
        task.exception()
