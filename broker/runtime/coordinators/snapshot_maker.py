"""Snapshots of coordinators' partitions, made by every replica, so that a follower that becomes leader has one.

A new snapshot is the former one with the log from its end to the high watermark folded in, so the cost does not depend
on the roles of the replica, and memory holds the new part of the log alone. One snapshot is made at a time, in slices,
with pauses between them.

A snapshot is due when the log has grown by `min_new_records` committed offsets, and by a third of the records of the
former snapshot. A load then reads at most that much of the log.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from broker.coordination.log_fold import FoldRule, LogFold, bucket_count_of, merged
from broker.coordination.snapshot_records import KeptRecord, Manifest, SnapshotEncoder, read_kept
from broker.logs import EventLog
from broker.metrics.coordinator_loads import CoordinatorSnapshotFigures
from broker.runtime.coordinators.partition_log import read_batches
from broker.runtime.coordinators.shard_log import LoadedBatch
from broker.runtime.coordinators.snapshot_store import CoordinatorSnapshot, SnapshotBatch, SnapshotStore, agrees, holds
from broker.runtime.loop.runtime import Runtime
from broker.runtime.loop.sliced_work import SlicedSteps, SlicedWork
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.registry import Partitions
from protocol.errors import KafkaError
from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid, uuid_to_text
from storage.log_snapshots import CheckpointId, FileRawSnapshotWriter

_READ_BYTES: Final = 1 << 20
_WRITE_BYTES: Final = 1 << 20
_RECORDS_PER_STEP: Final = 500
_MAX_NEW_RECORDS: Final = 250_000
"""Offsets of the log that one snapshot adds, which bounds the memory of the fold; the next snapshot goes on."""

_log = EventLog(__name__)


class SnapshotSettings(NamedTuple):
    """`interval_ms` is the pause between two looks at all partitions."""

    interval_ms: int
    min_new_records: int


class _Made(NamedTuple):
    """The last snapshot of a partition, or its absence at the start of the log."""

    id: CheckpointId | None
    end_offset: int
    record_count: int


class _LogTruncated(Exception):
    """The log was truncated while its snapshot was made, below records that the snapshot has."""


class SnapshotMaker:
    """Makes snapshots of the partitions of some internal topics. The owner runs `run` as a task."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: Partitions,
        store: SnapshotStore,
        rules: Mapping[str, FoldRule],
        settings: SnapshotSettings,
    ) -> None:
        self.figures = CoordinatorSnapshotFigures()
        self._runtime = runtime
        self._partitions = partitions
        self._store = store
        self._rules = rules
        self._settings = settings
        self._made: dict[tuple[Uuid, int], _Made] = {}

    async def run(self) -> None:
        """Make snapshots that are due until cancelled."""
        while True:
            await asyncio.sleep(self._settings.interval_ms / 1000)
            await self.make_due()

    async def make_due(self) -> None:
        """Make every snapshot that is due."""
        hosted = [each for each in self._partitions.all() if each.topic in self._rules]
        keys = {(each.topic_id, each.index) for each in hosted}
        self._made = {key: made for key, made in self._made.items() if key in keys}
        for partition in hosted:
            try:
                while self._is_due(partition, await self._last(partition)):
                    await self._make(partition)
            except (KafkaError, OSError, _LogTruncated) as error:  # another snapshot is due; the log is complete
                self.figures.failed += 1
                _log.info("A coordinator's snapshot is not made", partition=str(partition), error=str(error))

    async def _last(self, partition: Partition) -> _Made:
        key = partition.topic_id, partition.index
        made = self._made.get(key)
        if made is None or not _counts(partition, made):
            found = await self._store.newest(partition)
            made = _made(partition, found)
            self._made[key] = made
        return made

    def _is_due(self, partition: Partition, last: _Made) -> bool:
        log = partition.log
        if not self._partitions.is_in_service(partition) or log.failure is not None:
            return False
        needed = max(self._settings.min_new_records, last.record_count // 3)
        return log.high_watermark - last.end_offset >= needed

    async def _make(self, partition: Partition) -> None:
        """Make one snapshot. Raise KafkaError, OSError or _LogTruncated."""
        former = await self._store.newest(partition)
        rule = self._rules[partition.topic]
        started_ms = self._runtime.clock.monotonic_ms()
        fold, epoch = await self._folded(partition, rule, former)
        id = CheckpointId(fold.end_offset, epoch)
        writer = await self._store.begin(partition, id)
        encoder = SnapshotEncoder(epoch)
        now_ms = self._runtime.clock.now_ms()
        manifest = Manifest(uuid_to_text(partition.topic_id), partition.index, fold.bucket_count)
        try:
            steps = self._write(writer, _batches(encoder, manifest, fold, former, now_ms))
            await SlicedWork(steps, self._runtime.loop, self._runtime.clock, pauses=True).done
        except BaseException:
            self._store.io.submit(writer.abandon)
            raise
        await self._store.remove_all_but(partition, id)
        self._made[partition.topic_id, partition.index] = _Made(id, id.end_offset, encoder.record_count)
        elapsed_ms = self._runtime.clock.monotonic_ms() - started_ms
        self.figures.on_made(elapsed_ms, writer.size)
        _log.info(
            "Made a coordinator's snapshot",
            partition=str(partition),
            end_offset=id.end_offset,
            records=encoder.record_count,
            size=writer.size,
            elapsed_ms=round(elapsed_ms),
        )

    async def _folded(
        self, partition: Partition, rule: FoldRule, former: CoordinatorSnapshot | None
    ) -> tuple[LogFold, LeaderEpoch]:
        """Fold the committed log after the former snapshot; return the fold and the epoch of its last record.

        Raise KafkaError or _LogTruncated.
        """
        log = partition.log
        start = log.log_start_offset if former is None else former.id.end_offset
        end = min(log.high_watermark, start + _MAX_NEW_RECORDS)
        former_count = 0 if former is None else former.record_count
        former_buckets = 1 if former is None else former.manifest.bucket_count
        fold = LogFold(rule, max(former_buckets, bucket_count_of(former_count + end - start)), end_offset=start)
        for batch in () if former is None else former.batches:
            if batch.bucket is None:
                await self._sliced(_restore_steps(fold, batch))
        ends = {} if former is None else {former.id.epoch: start}
        offset = start
        while offset < end:
            batches = await read_batches(partition, self._runtime.io, offset, _READ_BYTES, log.high_watermark)
            if not batches:
                break
            await self._sliced(_fold_steps(fold, batches))
            ends.update((batch.leader_epoch, batch.next_offset) for batch in batches)
            offset = batches[-1].next_offset
            fold.end_offset = offset
        # The reads are apart in time: an unclean election may have cut what an earlier one has returned.
        if not ends or not all(holds(log, end_offset, epoch) for epoch, end_offset in ends.items()):
            raise _LogTruncated
        return fold, max(ends)

    async def _sliced(self, steps: SlicedSteps[None]) -> None:
        await SlicedWork(steps, self._runtime.loop, self._runtime.clock, pauses=True).done

    def _write(self, writer: FileRawSnapshotWriter, batches: Iterator[bytes]) -> SlicedSteps[None]:
        gathered = bytearray()
        for batch in batches:
            gathered += batch
            if len(gathered) >= _WRITE_BYTES:
                writing = self._store.io.submit(partial(writer.append, bytes(gathered)))
                yield writing
                writing.result()
                gathered.clear()
            else:
                yield None
        for work in (partial(writer.append, bytes(gathered)), writer.commit):
            done = self._store.io.submit(work)
            yield done
            done.result()


def _made(partition: Partition, found: CoordinatorSnapshot | None) -> _Made:
    if found is None:
        return _Made(None, partition.log.log_start_offset, 0)
    return _Made(found.id, found.id.end_offset, found.record_count)


def _counts(partition: Partition, made: _Made) -> bool:
    """Whether the log still has the history of a snapshot."""
    return made.end_offset == partition.log.log_start_offset if made.id is None else agrees(partition.log, made.id)


def _restore_steps(fold: LogFold, batch: SnapshotBatch) -> SlicedSteps[None]:
    for record in read_kept(batch.data, batch.header):
        fold.restore(record)
    yield None


def _fold_steps(fold: LogFold, batches: Sequence[LoadedBatch]) -> SlicedSteps[None]:
    for batch in batches:
        if batch.committed is not None:
            fold.end_transaction(batch.producer_id, batch.committed, batch.next_offset - 1)
        records = iter(batch.records)
        while chunk := tuple(islice(records, _RECORDS_PER_STEP)):
            others = chunk if batch.producer_id >= 0 else fold.add_owned(chunk)
            for offset, key, value in others:
                fold.add(KeptRecord(offset, key, value, batch.producer_id))
            yield None


def _batches(
    encoder: SnapshotEncoder, manifest: Manifest, fold: LogFold, former: CoordinatorSnapshot | None, now_ms: int
) -> Iterator[bytes]:
    """Yield the batches of the new snapshot; the buckets of the former one that did not change are copied."""
    yield encoder.header(manifest, now_ms)
    yield from encoder.kept(fold.kept())
    has_equal_buckets = former is not None and former.manifest.bucket_count == fold.bucket_count
    for bucket, batches in _buckets(former).items():
        if has_equal_buckets and bucket not in fold.buckets:
            for batch in batches:
                yield encoder.copied(batch.data, batch.header.record_count)
            continue
        step = 1 if former is None else former.manifest.bucket_count
        earlier: dict[int, list[KeptRecord]] = {at: [] for at in range(bucket, fold.bucket_count, step)}
        for batch in batches:
            for record in read_kept(batch.data, batch.header):
                earlier[fold.bucket_of(record.key)].append(record)
        for at, records in earlier.items():
            yield from encoder.bucket(at, merged(records, fold.buckets.pop(at, {})))
    for bucket, changes in fold.buckets.items():
        yield from encoder.bucket(bucket, merged((), changes))
    yield encoder.footer(now_ms)


def _buckets(snapshot: CoordinatorSnapshot | None) -> dict[int, list[SnapshotBatch]]:
    found: dict[int, list[SnapshotBatch]] = {}
    for batch in () if snapshot is None else snapshot.batches:
        if batch.bucket is not None:
            found.setdefault(batch.bucket, []).append(batch)
    return found
