"""Loading: rebuilds a shard from its partition's log, in slices, so that the event loop runs other work in between.

With a snapshot, only the log after it is read. A shard that parks records (`Shard.parking`) gets most records without a
replay: those of the snapshot, with those of the log that replace them, or those of a long log without a snapshot.
"""

import asyncio
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any, Final

from broker.clock import Clock
from broker.coordination.log_fold import FoldRule, LogFold, bucket_count_of
from broker.coordination.parked_records import ParkedRecords
from broker.coordination.shard import Parking, Shard
from broker.coordination.snapshot_records import KeptRecord, read_kept
from broker.metrics.coordinator_loads import LoadFigures
from broker.runtime.coordinators.shard_log import LoadedBatch, LoadedRecord, ShardLog
from broker.runtime.coordinators.snapshot_store import CoordinatorSnapshot, SnapshotBatch

SLICE_MS = 1.0
_RECORDS_PER_LOOK: Final = 16
"""Records between two looks at the clock."""
_PARKED_BUCKET_RECORDS: Final = 2_000
"""Records of the largest bucket that is parked, and of the longest log that is replayed at once without a snapshot.

Their replay takes some ten milliseconds.
"""


class _Target:
    """The shard under construction. With `fold`, records with an owner go there instead of into the shard."""

    __slots__ = ("_rule", "_shard", "fold", "replayed")

    def __init__(self, shard: Shard[Any, Any], rule: FoldRule) -> None:
        self._shard = shard
        self._rule = rule
        self.fold: LogFold | None = None
        self.replayed = 0

    def restore(self, record: KeptRecord) -> None:
        """Take a record of the snapshot that is in no bucket."""
        if self.fold is not None and self._rule.owner_of(record.key) is not None:
            self.fold.restore(record)
        else:
            self.replay(record)

    def add(self, records: Iterable[LoadedRecord], producer_id: int) -> None:
        """Take the next records of the log."""
        if self.fold is None:
            self._replay_all(records, producer_id)
        elif producer_id < 0:
            self._replay_all(self.fold.add_owned(records), producer_id)
        else:
            for record in records:
                if self._rule.owner_of(record.key) is None:
                    self.replay(KeptRecord(*record, producer_id))
                else:
                    self.fold.add(KeptRecord(*record, producer_id))

    def _replay_all(self, records: Iterable[tuple[int, bytes, bytes | None]], producer_id: int) -> None:
        for offset, key, value in records:
            self.replay(KeptRecord(offset, key, value, producer_id))

    def replay(self, record: KeptRecord) -> None:
        """Apply a record to the shard. Raise DecodeError for a malformed one."""
        self.replayed += 1
        event = self._shard.decode(record.key, record.value)
        if event is not None:
            self._shard.replay(event, record.offset, record.producer_id)

    def end_transaction(self, producer_id: int, committed: bool, offset: int) -> None:
        """Take a transaction marker of the log."""
        if self.fold is None:
            self._shard.replay_end_transaction(producer_id, committed)
        else:
            self.fold.end_transaction(producer_id, committed, offset)


class ShardLoader:
    """Replays logs into shards. `buffer_bytes` limits one read (`offsets.load.buffer.size`)."""

    def __init__(self, clock: Clock, buffer_bytes: int, rule: FoldRule) -> None:
        self.figures = LoadFigures()
        self._clock = clock
        self._buffer_bytes = buffer_bytes
        self._rule = rule
        self._slice_end_ms = 0.0

    async def load(self, shard: Shard[Any, Any], log: ShardLog, snapshot: CoordinatorSnapshot | None = None) -> int:
        """Replay the whole log, committed or not, and return the offset after it.

        Raise KafkaError when the log cannot be read, DecodeError when a record is malformed.
        """
        started_ms = self._clock.monotonic_ms()
        self._start_slice()
        target = _Target(shard, self._rule)
        is_short = snapshot is None and log.end_offset - log.start_offset <= _PARKED_BUCKET_RECORDS
        if shard.parking is None or not self._rule.parks or is_short:
            for batch in () if snapshot is None else snapshot.batches:
                await self._restore_batch(target, batch)
            offset = await self._read(target, log, _first_offset(log, snapshot))
        else:
            offset = await self._load_and_park(target, shard.parking, log, snapshot)
        self.figures.loaded(target.replayed, self._clock.monotonic_ms() - started_ms)
        return offset

    async def _load_and_park(
        self, target: _Target, parking: Parking, log: ShardLog, snapshot: CoordinatorSnapshot | None
    ) -> int:
        """Replay what belongs to no bucket, and park the other records."""
        if snapshot is None:
            bucket_count = bucket_count_of(log.end_offset - log.start_offset)
        else:
            bucket_count = snapshot.manifest.bucket_count
        target.fold = fold = LogFold(self._rule, bucket_count)
        batches: dict[int, list[memoryview]] = {}
        for batch in () if snapshot is None else snapshot.batches:
            if batch.bucket is None:
                await self._restore_batch(target, batch)
            else:
                batches.setdefault(batch.bucket, []).append(batch.data)
        offset = await self._read(target, log, _first_offset(log, snapshot))
        parked = ParkedRecords(bucket_count, batches, fold.buckets)
        for record in chain(fold.open_transactions(), parked.take_large(_PARKED_BUCKET_RECORDS)):
            target.replay(record)
            await self._end_slice()
        parking.park(parked)
        return offset

    async def _restore_batch(self, target: _Target, batch: SnapshotBatch) -> None:
        for record in read_kept(batch.data, batch.header):
            target.restore(record)
            await self._end_slice()

    async def _read(self, target: _Target, log: ShardLog, offset: int) -> int:
        while offset < log.end_offset:
            batches = await log.read(offset, self._buffer_bytes)
            if not batches:
                break
            for batch in batches:
                await self._take(target, batch)
                offset = batch.next_offset
        return offset

    async def _take(self, target: _Target, batch: LoadedBatch) -> None:
        if batch.committed is not None:
            target.end_transaction(batch.producer_id, batch.committed, batch.next_offset - 1)
        records = iter(batch.records)
        while chunk := tuple(islice(records, _RECORDS_PER_LOOK)):
            target.add(chunk, batch.producer_id)
            await self._end_slice()

    async def _end_slice(self) -> None:
        if self._clock.monotonic_ms() >= self._slice_end_ms:
            await asyncio.sleep(0)
            self._start_slice()

    def _start_slice(self) -> None:
        self._slice_end_ms = self._clock.monotonic_ms() + SLICE_MS


def _first_offset(log: ShardLog, snapshot: CoordinatorSnapshot | None) -> int:
    """Return the offset at which a load begins to read the log."""
    return log.start_offset if snapshot is None else snapshot.id.end_offset
