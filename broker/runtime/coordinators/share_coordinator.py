"""The share coordinator of this node: the states of share partitions, over the shards of `__share_group_state`.

Finds the shard of a share partition, runs the request's command there and awaits its result. Deletes the records that
newer snapshots have replaced. Holds no rules about share partitions.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from broker.coordination.partitioner import partition_for
from broker.coordination.shard import CoordinatorResult
from broker.coordination.share_partition_key import SharePartitionKey
from broker.logs import EventLog
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_names import SHARE_STATE_TOPIC
from broker.metrics.share_state import ShareStateFigures
from broker.runtime.coordinators.hosted_shard import Answer, Command
from broker.runtime.coordinators.led_shards import follow_leadership, load_hosted
from broker.runtime.coordinators.shard_runtime import ShardRuntime, ShardState
from broker.runtime.loop.runtime import Runtime
from broker.runtime.partitions.partition import Partition
from broker.share_state.shard import ShareStateShard, ShareStateWrite
from broker.share_state.state import ShareState
from protocol.errors import KafkaError
from protocol.ids import BrokerId

R = TypeVar("R")
DeleteRecords = Callable[[int, int], None]
"""Deletes the records of a partition of the topic before an offset. Raises KafkaError."""

_log = EventLog(__name__)


class ShareCoordinator:
    """Keeps the states of the share partitions whose partitions of the topic this node leads.

    `partition_count` returns the partition count of `__share_group_state`, or the count it will be created with. All
    operations return their answer, or a future of it, and raise KafkaError with the log's errors.
    """

    def __init__(
        self,
        runtime: Runtime,
        shards: ShardRuntime[ShareStateShard],
        delete_records: DeleteRecords,
        partition_count: Callable[[], int],
        broker_id: BrokerId,
        prune_interval_ms: int,
    ) -> None:
        self.figures = ShareStateFigures()
        self.loads = shards.loads
        self._runtime = runtime
        self._shards = shards
        self._delete_records = delete_records
        self._partition_count = partition_count
        self._broker_id = broker_id
        self._prune_interval_ms = prune_interval_ms

    # Requests.

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Answer[None]:
        """Begin a state epoch of a share partition."""
        return self._execute(key, lambda shard: shard.initialize(key, state_epoch, start_offset))

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Answer[ShareState]:
        """Return the state of a share partition to the partition's leader, and fence its former leaders."""
        return self._execute(key, lambda shard: shard.read(key, leader_epoch))

    def write(self, key: SharePartitionKey, write: ShareStateWrite) -> Answer[None]:
        """Change the state of a share partition. Writes of several share partitions share batches."""
        self.figures.writes += 1
        began_ms = self._runtime.clock.monotonic_ms()
        answer = self._execute(key, lambda shard: shard.write(key, write))
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(partial(self._on_written, began_ms))
        else:
            self.figures.committed(self._runtime.clock.monotonic_ms() - began_ms)
        return answer

    def summary(self, key: SharePartitionKey) -> Answer[ShareState | None]:
        """Return the state of a share partition; None if it is not initialized."""
        return self._execute(key, lambda shard: CoordinatorResult(shard.summary(key)))

    def delete(self, key: SharePartitionKey) -> Answer[None]:
        """Remove the state of a share partition."""
        return self._execute(key, lambda shard: shard.delete(key))

    # Lifecycle.

    async def run(self) -> None:
        """Load elected partitions, one after another, until cancelled."""
        self._prune_later()
        await self._shards.run_loader()

    def close(self) -> None:
        """Stop coordinating."""
        self._shards.close()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply changes of leadership and deletions of topics. Call after the partitions have changed their roles."""
        follow_leadership(self._shards, SHARE_STATE_TOPIC, self._broker_id, delta)
        deleted = () if delta.topics is None else delta.topics.deleted.keys()
        for partition in self._in_service() if deleted else ():
            try:
                self._shards.post(partition, lambda shard: shard.on_topics_deleted(deleted))
            except KafkaError as error:
                # They remain: a new topic has another id, so only their space is lost.
                _log.warning("States of deleted topics stay", partition=partition, error=str(error))

    def on_hosted(self, partition: Partition) -> None:
        """Load a partition that has come into service after the metadata made this node its leader."""
        load_hosted(self._shards, SHARE_STATE_TOPIC, partition)

    # Pruning.

    def prune(self) -> None:
        """Delete the records that newer snapshots have replaced, once those are committed."""
        for partition in self._in_service():
            try:
                answer = self._shards.execute(partition, lambda shard: CoordinatorResult(shard.redundant_end()))
            except KafkaError as error:
                _log.debug("Share states were not pruned", partition=partition, error=str(error))
                continue
            if isinstance(answer, asyncio.Future):
                answer.add_done_callback(partial(self._on_end_committed, partition))
            else:
                self._prune(partition, answer)

    def _on_end_committed(self, partition: int, answer: "asyncio.Future[int | None]") -> None:
        if not answer.cancelled() and answer.exception() is None:
            self._prune(partition, answer.result())

    def _prune(self, partition: int, end: int | None) -> None:
        if end is None or self.figures.pruned_offsets.get(partition) == end:
            return
        try:
            self._delete_records(partition, end)
            self.figures.pruned_offsets[partition] = end
        except KafkaError as error:
            _log.warning("Share states were not pruned", partition=partition, offset=end, error=str(error))

    def _prune_later(self) -> None:
        self._runtime.deadlines.after_ms(self._prune_interval_ms, self._prune_now)

    def _prune_now(self) -> None:
        self._prune_later()
        self.prune()

    def _in_service(self) -> list[int]:
        return [partition for partition, state in self._shards.states().items() if state is ShardState.ACTIVE]

    # Commands.

    def _partition_of(self, key: SharePartitionKey) -> int:
        return partition_for(key.coordinator_key, self._partition_count())

    def _execute(self, key: SharePartitionKey, command: Command[ShareStateShard, R]) -> Answer[R]:
        return self._shards.execute(self._partition_of(key), command)

    def _on_written(self, began_ms: float, answer: "asyncio.Future[None]") -> None:
        if not answer.cancelled() and answer.exception() is None:
            self.figures.committed(self._runtime.clock.monotonic_ms() - began_ms)
