"""Loading: rebuilds a shard from its partition's log, in slices, so that the event loop runs other work in between."""

import asyncio
from typing import Any

from broker.clock import Clock
from broker.coordination.shard import Shard
from broker.metrics.coordinator_loads import LoadFigures
from broker.runtime.coordinators.shard_log import LoadedBatch, ShardLog

SLICE_MS = 1.0


class ShardLoader:
    """Replays logs into shards. `buffer_bytes` limits one read (`offsets.load.buffer.size`)."""

    def __init__(self, clock: Clock, buffer_bytes: int) -> None:
        self.figures = LoadFigures()
        self._clock = clock
        self._buffer_bytes = buffer_bytes
        self._slice_end_ms = 0.0

    async def load(self, shard: Shard[Any, Any], log: ShardLog) -> int:
        """Replay the whole log, committed or not, and return the offset after it.

        Raise KafkaError when the log cannot be read, DecodeError when a record is malformed.
        """
        offset = log.start_offset
        records = 0
        started_ms = self._clock.monotonic_ms()
        self._start_slice()
        while offset < log.end_offset:
            batches = await log.read(offset, self._buffer_bytes)
            if not batches:
                break
            for batch in batches:
                records += await self._replay(shard, batch)
                offset = batch.next_offset
        self.figures.loaded(records, self._clock.monotonic_ms() - started_ms)
        return offset

    async def _replay(self, shard: Shard[Any, Any], batch: LoadedBatch) -> int:
        """Replay a batch and return the number of its records."""
        count = 0
        if batch.committed is not None:
            shard.replay_end_transaction(batch.producer_id, batch.committed)
        for count, record in enumerate(batch.records, 1):  # noqa: B007  the count is returned
            event = shard.decode(record.key, record.value)
            if event is not None:
                shard.replay(event, record.offset, batch.producer_id)
            if self._clock.monotonic_ms() >= self._slice_end_ms:
                await asyncio.sleep(0)
                self._start_slice()
        return count

    def _start_slice(self) -> None:
        self._slice_end_ms = self._clock.monotonic_ms() + SLICE_MS
