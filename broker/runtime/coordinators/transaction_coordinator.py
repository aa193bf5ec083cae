"""The transaction coordinator of this node: the operations of API handlers, over the shards of `__transaction_state`.

Finds the shard of a transactional id and runs the request's command there. A result whose records are committed already
is returned at once, so that a request costs neither task nor future; otherwise it is awaitable. A command that needs a
new producer id runs again with one. Holds no rules about transactions.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import chain
from typing import Any, Protocol, TypeAlias, TypeVar

from broker.coordination.errors import response_error
from broker.coordination.partitioner import partition_for
from broker.coordination.shard import CoordinatorResult
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_names import TRANSACTION_STATE_TOPIC
from broker.runtime.coordinators.led_shards import follow_leadership, load_hosted
from broker.runtime.coordinators.shard_runtime import ShardRuntime
from broker.runtime.coordinators.transaction_markers import TransactionMarkers
from broker.runtime.loop.pending_result import PendingResult
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

R = TypeVar("R")
Command = Callable[[TransactionShard, int], CoordinatorResult[Any, R]]
Result: TypeAlias = R | Awaitable[R]
"""The result of an operation, or an awaitable of it. Both raise KafkaError."""


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
        markers.figures.unwritten_ends = lambda: sum(shard.unwritten_ends for shard in shards.shards())

    # Requests.

    async def init_producer(self, transactional_id: str, request: InitRequest) -> ProducerIdAndEpoch:
        """Begin a producer session. Raises CONCURRENT_TRANSACTIONS while a former transaction ends."""
        result: Result[ProducerIdAndEpoch | ErrorCode] = self._execute(
            transactional_id, lambda shard, fresh_id: shard.init_producer(transactional_id, request, fresh_id)
        )
        answer = await result if isinstance(result, Awaitable) else result
        if isinstance(answer, ErrorCode):
            raise KafkaError(answer)
        return answer

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TransactionPartition],
        version: int,
    ) -> Result[None]:
        """Add partitions to a transaction. `version` is the transaction version of the client."""
        return self._execute(
            transactional_id, lambda shard, _: shard.add_partitions(transactional_id, producer, partitions, version)
        )

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TransactionPartition]
    ) -> Result[Mapping[TransactionPartition, ErrorCode]]:
        """Return for each partition whether the ongoing transaction has it."""
        return self._execute(
            transactional_id,
            lambda shard, _: CoordinatorResult(shard.verify_partitions(transactional_id, producer, partitions)),
        )

    def end(self, transactional_id: str, request: EndRequest) -> Result[ProducerIdAndEpoch]:
        """Decide the outcome of a transaction; return the producer id and epoch of the next one."""
        return self._execute(transactional_id, lambda shard, fresh_id: shard.end(transactional_id, request, fresh_id))

    async def describe(self, transactional_id: str) -> Transaction:
        """Return the state of a transactional id. Raises TRANSACTIONAL_ID_NOT_FOUND."""
        found = await settled(self._execute(transactional_id, lambda shard, _: shard.describe(transactional_id)))
        if found is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return found

    async def list(self, wanted: TransactionFilter, view: Callable[[str, Transaction], R]) -> list[R]:
        """Return views of the matching transactional ids of all partitions led here, in slices.

        Raises COORDINATOR_LOAD_IN_PROGRESS.
        """
        self._shards.partitions_in_service()
        now_ms = self._runtime.clock.now_ms()
        slices = chain.from_iterable(shard.views() for shard in list(self._shards.shards()))
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

    def _execute(self, transactional_id: str, command: Command[R]) -> Result[R]:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        partition = partition_for(transactional_id, self._partition_count())
        try:
            answer = self._shards.execute(partition, lambda shard: command(shard, NO_PRODUCER_ID))
        except ProducerIdNeeded:
            return self._execute_with_id(partition, command)
        except KafkaError as error:
            raise KafkaError(response_error(error.code)) from error
        return PendingResult(answer, _committed) if isinstance(answer, asyncio.Future) else answer

    async def _execute_with_id(self, partition: int, command: Command[R]) -> R:
        try:
            fresh_id = await self._producer_ids.next_id()
            return await settled(self._shards.execute(partition, lambda shard: command(shard, fresh_id)))
        except KafkaError as error:
            raise KafkaError(response_error(error.code)) from error

    def _on_written(self, markers: PendingMarkers) -> None:
        """End a transaction that has all its markers, unless another node coordinates the transactional id now."""
        transactional_id, producer = markers.transactional_id, markers.transaction.producer
        partition = partition_for(transactional_id, self._partition_count())
        with contextlib.suppress(KafkaError):
            self._shards.post(partition, lambda shard: shard.complete(transactional_id, producer), soft=True)


async def settled(result: Result[R]) -> R:
    """Return the result of an operation. Raise KafkaError."""
    return await result if isinstance(result, Awaitable) else result


def _committed(answer: asyncio.Future[R]) -> R:
    try:
        return answer.result()
    except KafkaError as error:
        raise KafkaError(response_error(error.code)) from error
