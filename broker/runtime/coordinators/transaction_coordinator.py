"""The transaction coordinator of this node: the operations of API handlers, over the shards of `__transaction_state`.

Finds the shard of a transactional id, runs the request's command there and awaits its result. A command that needs a
new producer id runs again with one. Holds no rules about transactions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Any, Final, Protocol, TypeVar

from broker.coordination.errors import response_error
from broker.coordination.partitioner import partition_for
from broker.coordination.shard import CoordinatorResult
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_names import TRANSACTION_STATE_TOPIC
from broker.runtime.coordinators.hosted_shard import Answer
from broker.runtime.coordinators.led_shards import follow_leadership, load_hosted
from broker.runtime.coordinators.shard_runtime import ShardRuntime
from broker.runtime.coordinators.transaction_markers import TransactionMarkers
from broker.runtime.loop.runtime import Runtime
from broker.runtime.loop.sliced_work import SlicedWork
from broker.runtime.partitions.partition import Partition
from broker.transactions.end import EndRequest
from broker.transactions.init_producer import InitRequest, ProducerIdNeeded
from broker.transactions.listing import TransactionFilter
from broker.transactions.markers import PendingMarkers
from broker.transactions.shard import TransactionShard
from broker.transactions.state import NO_PRODUCER_ID, ProducerIdAndEpoch, Transaction, TransactionPartition
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerId

_RETRY_MS: Final = 500
"""Pause before the end of a transaction is written again."""

R = TypeVar("R")
Command = Callable[[TransactionShard, int], CoordinatorResult[Any, R]]


class ProducerIdSource(Protocol):
    """Allocates producer ids."""

    def next_id(self) -> Awaitable[int]:
        """Return a producer id that was never allocated before. Raises KafkaError."""
        ...


class TransactionCoordinator:
    """Serves the transactional ids whose partitions this node leads.

    `partition_count` returns the partition count of `__transaction_state`, or the count it will be created with. All
    operations raise KafkaError.
    """

    def __init__(
        self,
        runtime: Runtime,
        shards: ShardRuntime[TransactionShard],
        markers: TransactionMarkers,
        producer_ids: ProducerIdSource,
        partition_count: Callable[[], int],
        broker_id: BrokerId,
    ) -> None:
        self.markers = markers
        self._runtime = runtime
        self.loads = shards.loads
        self._shards = shards
        self._producer_ids = producer_ids
        self._partition_count = partition_count
        self._broker_id = broker_id
        markers.written = self._on_written

    # Requests.

    async def init_producer(self, transactional_id: str, request: InitRequest) -> ProducerIdAndEpoch:
        """Begin a producer session. Raises CONCURRENT_TRANSACTIONS while a former transaction ends."""
        answer = await self._execute(
            transactional_id, lambda shard, fresh_id: shard.init_producer(transactional_id, request, fresh_id)
        )
        if isinstance(answer, ErrorCode):
            raise KafkaError(answer)
        return answer

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TransactionPartition],
        version: int,
    ) -> None:
        """Add partitions to a transaction. `version` is the transaction version of the client."""
        await self._execute(
            transactional_id, lambda shard, _: shard.add_partitions(transactional_id, producer, partitions, version)
        )

    async def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TransactionPartition]
    ) -> Mapping[TransactionPartition, ErrorCode]:
        """Return for each partition whether the ongoing transaction has it."""
        return await self._execute(
            transactional_id,
            lambda shard, _: CoordinatorResult(shard.verify_partitions(transactional_id, producer, partitions)),
        )

    async def end(self, transactional_id: str, request: EndRequest) -> ProducerIdAndEpoch:
        """Decide the outcome of a transaction; return the producer id and epoch of the next one."""
        return await self._execute(
            transactional_id, lambda shard, fresh_id: shard.end(transactional_id, request, fresh_id)
        )

    async def describe(self, transactional_id: str) -> Transaction:
        """Return the state of a transactional id. Raises TRANSACTIONAL_ID_NOT_FOUND."""
        found = await self._execute(transactional_id, lambda shard, _: CoordinatorResult(shard.get(transactional_id)))
        if found is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return found

    async def list(self, wanted: TransactionFilter, view: Callable[[str, Transaction], R]) -> list[R]:
        """Return views of the matching transactional ids of all partitions led here, in slices.

        Raises COORDINATOR_LOAD_IN_PROGRESS.
        """
        self._shards.partitions_in_service()
        now_ms = self._runtime.clock.now_ms()
        slices = chain.from_iterable(shard.slices() for shard in list(self._shards.shards()))
        steps = wanted.select(slices, now_ms, view)
        return await SlicedWork(steps, self._runtime.loop, self._runtime.clock, pauses=False).done

    # Lifecycle.

    async def run(self) -> None:
        """Load elected partitions, one after another, until cancelled."""
        await self._shards.run_loader()

    def close(self) -> None:
        """Stop coordinating."""
        self._shards.close()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply changes of leadership. Call after the partitions have changed their roles."""
        follow_leadership(self._shards, TRANSACTION_STATE_TOPIC, self._broker_id, delta)

    def on_hosted(self, partition: Partition) -> None:
        """Load a partition that has come into service after the metadata made this node its leader."""
        load_hosted(self._shards, TRANSACTION_STATE_TOPIC, partition)

    # Commands.

    async def _execute(self, transactional_id: str, command: Command[R]) -> R:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        partition = partition_for(transactional_id, self._partition_count())
        try:
            try:
                return await _settled(self._shards.execute(partition, lambda shard: command(shard, NO_PRODUCER_ID)))
            except ProducerIdNeeded:
                fresh_id = await self._producer_ids.next_id()
                return await _settled(self._shards.execute(partition, lambda shard: command(shard, fresh_id)))
        except KafkaError as error:
            raise KafkaError(response_error(error.code)) from error

    def _on_written(self, markers: PendingMarkers) -> None:
        """End a transaction that has all its markers."""
        transactional_id, producer = markers.transactional_id, markers.transaction.producer
        partition = partition_for(transactional_id, self._partition_count())
        try:
            answer = self._shards.execute(partition, lambda shard: shard.complete(transactional_id, producer))
        except KafkaError as error:
            self._on_end_failed(markers, error)
            return
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(partial(self._on_end_settled, markers))

    def _on_end_settled(self, markers: PendingMarkers, answer: "asyncio.Future[None]") -> None:
        error = None if answer.cancelled() else answer.exception()
        if isinstance(error, KafkaError):
            self._on_end_failed(markers, error)

    def _on_end_failed(self, markers: PendingMarkers, error: KafkaError) -> None:
        """Write the end again, unless another node coordinates the transactional id now."""
        if response_error(error.code) is ErrorCode.COORDINATOR_NOT_AVAILABLE and not markers.is_dropped:
            self.markers.figures.unwritten_ends += 1
            self._runtime.deadlines.after_ms(_RETRY_MS, partial(self._end_again, markers))

    def _end_again(self, markers: PendingMarkers) -> None:
        self.markers.figures.unwritten_ends -= 1
        if not markers.is_dropped:
            self._on_written(markers)


async def _settled(answer: Answer[R]) -> R:
    return await answer if isinstance(answer, asyncio.Future) else answer
