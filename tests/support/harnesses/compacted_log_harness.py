"""Harness of a compacted partition with a remote part on two brokers, and a reader that compares written records with
the records served to consumers.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from broker.runtime.partitions.partition import Partition
from broker.runtime.remote_log.locations import Located, RemoteLocations
from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, iter_headers
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, end_transaction_marker
from protocol.records.reader import iter_records
from storage.compaction.cleaner import LogCleaner
from storage.compaction.offset_map import ENTRY_BYTES
from storage.config import CleanupPolicy
from storage.index.transaction import AbortedTxn
from storage.log import Log
from storage.producer_state import Origin
from storage.tiered.cache.index_cache import IndexCache
from storage.tiered.segments.reading import ReadRange, SegmentReader
from tests.support.fakes.memory_files import MemoryFileSystem
from tests.support.harnesses.remote_log_harness import TIERED, Broker, Bucket, replicate

RETENTION_MS = 60_000
COMPACTED = replace(
    TIERED,
    cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
    segment_bytes=2000,
    min_cleanable_dirty_ratio=0.3,
    local_retention_bytes=1500,
    delete_retention_ms=RETENTION_MS,
)


class Written(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None
    producer: int


class Seen(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None


@dataclass
class Producer:
    id: int
    next_sequence: int = 0
    open: list[Written] = field(default_factory=list)


class CompactedLogHarness:
    """`leader` leads; the other broker follows on request. `committed` is the expected table of a reader."""

    def __init__(self, **changes: object) -> None:
        self.bucket = Bucket()
        self.config = replace(COMPACTED, **changes)  # type: ignore[arg-type]
        self.brokers = [self._broker(1), self._broker(2)]
        self.leader = self.brokers[0]
        self.epoch = 0
        self.producers = {number: Producer(number) for number in (1, 2)}
        self.committed: list[Written] = []
        self.lead(self.leader)

    def _broker(self, number: int) -> Broker:
        broker = Broker(self.bucket, number)
        broker.config = self.config
        return broker.start()

    @property
    def follower(self) -> Broker:
        return next(broker for broker in self.brokers if broker is not self.leader)

    @property
    def log(self) -> Log:
        return self.leader.replica().log

    # ---- roles

    def lead(self, broker: Broker) -> None:
        """Elect a broker cleanly."""
        if self.epoch:
            self.replicate()
        self.epoch += 1
        self.leader = broker
        broker.lead(self.epoch)
        self.follower.follow(self.epoch)
        self.log.advance_high_watermark(self.log.log_end_offset)

    def replicate(self) -> None:
        source, target = self.log, self.follower.replica().log
        if target.log_end_offset < source.local_log_start_offset:
            return  # it would start after its remote records
        replicate(source, target, self.leader.clock.now_ms())

    @property
    def may_change_leader(self) -> bool:
        return self.follower.replica().log.log_end_offset >= self.log.local_log_start_offset

    async def restart(self, broker: Broker) -> None:
        """Crash a broker and restart it in its role."""
        await broker.crash()
        broker.start()
        if broker is self.leader:
            self.epoch += 1
            broker.lead(self.epoch)
            self.follower.follow(self.epoch)
            self.log.advance_high_watermark(self.log.log_end_offset)
        else:
            broker.follow(self.epoch)

    async def give_up(self) -> None:
        for broker in self.brokers:
            await broker.give_up()

    # ---- writing

    def put(self, *entries: tuple[str, str | None]) -> None:
        records = [self._record(*entry) for entry in entries]
        first = self._append(build_batch(records))
        self.committed += self._written(first, records, -1)

    def put_in_transaction(self, number: int, *entries: tuple[str, str | None]) -> None:
        producer = self.producers[number]
        records = [self._record(*entry) for entry in entries]
        batch = build_batch(
            records,
            producer_id=number,
            producer_epoch=0,
            base_sequence=producer.next_sequence,
            transactional=True,
        )
        producer.next_sequence += len(records)
        producer.open += self._written(self._append(batch), records, number)

    def end(self, number: int, type: ControlType) -> None:
        producer = self.producers[number]
        if not producer.open:
            return
        now_ms = self.leader.clock.now_ms()
        self._append(end_transaction_marker(type, number, 0, 0, now_ms), Origin.COORDINATOR)
        if type is ControlType.COMMIT:
            self.committed += producer.open
        producer.open = []

    def _record(self, key: str, value: str | None) -> Record:
        return Record(self.leader.clock.now_ms(), key.encode(), None if value is None else value.encode())

    def _written(self, first: int, records: list[Record], producer: int) -> list[Written]:
        return [Written(first + at, one.key or b"", one.value, producer) for at, one in enumerate(records)]

    def _append(self, batch: bytes | bytearray, origin: Origin = Origin.CLIENT) -> int:
        now_ms = self.leader.clock.now_ms()
        info = self.log.append_as_leader(bytearray(batch), LeaderEpoch(self.epoch), now_ms=now_ms, origin=origin)
        self.log.advance_high_watermark(self.log.log_end_offset)
        return info.first_offset

    def roll(self) -> None:
        if self.log.active_segment.size:
            self.log.roll(self.leader.clock.now_ms())

    # ---- the disks

    def clean(self, broker: Broker) -> bool:
        """Run the local cleaner if the log is dirty enough."""
        log = broker.replica().log
        cleaner = LogCleaner(
            broker.fs,
            dedupe_buffer_bytes=50 * ENTRY_BYTES,
            make_durable=broker.dirs.checkpoints.make_durable,
            load_factor=1.0,
        )
        cleaner.load_checkpoints(["d"])
        candidate = cleaner.next_candidate([log], broker.clock.now_ms())
        if candidate is None:
            return False
        cleaning = cleaner.begin(candidate, broker.clock.now_ms())
        while not cleaning.is_done:
            swap = cleaning.step()
            if swap is not None:
                for segment in log.replace_segments(*swap):
                    segment.remove_files()
        cleaner.finish(cleaning)
        return True

    # ---- reading

    def expected(self) -> dict[bytes, bytes]:
        table: dict[bytes, bytes] = {}
        for one in sorted(self.committed):
            if one.offset >= self.log.last_stable_offset:
                break
            if one.value is None:
                table.pop(one.key, None)
            else:
                table[one.key] = one.value
        return table

    def is_written(self, seen: Seen) -> bool:
        return any(one[:3] == seen for one in self.committed)


class TableReader:
    """A read_committed consumer that builds a table, one fetch at a time."""

    def __init__(self, stage: CompactedLogHarness) -> None:
        self._stage = stage
        self.began_ms = stage.leader.clock.now_ms()
        self.offset = stage.log.log_start_offset
        self.seen: list[Seen] = []
        self.remote_reads = 0

    @property
    def elapsed_ms(self) -> int:
        return self._stage.leader.clock.now_ms() - self.began_ms

    @property
    def is_at_end(self) -> bool:
        return self.offset >= self._stage.log.last_stable_offset

    def table(self) -> dict[bytes, bytes]:
        table: dict[bytes, bytes] = {}
        for one in self.seen:
            if one.value is None:
                table.pop(one.key, None)
            else:
                table[one.key] = one.value
        return table

    def read_all(self) -> "TableReader":
        while not self.is_at_end:
            self.read_some()
        return self

    def read_some(self, max_bytes: int = 700) -> None:
        """Consume one fetch, or one exhausted remote segment."""
        log = self._stage.log
        upper = log.last_stable_offset
        if self.offset >= log.local_log_start_offset:
            part = log.read(self.offset, max_bytes, upper)
            assert part.next_offset > self.offset
            self._take(part.data, log.aborted_transactions(self.offset, part.next_offset))
            self.offset = part.next_offset
            return
        self.remote_reads += 1
        storage = self._stage.bucket.storage
        fault, storage.fault = storage.fault, lambda operation, segment: None
        try:
            self._read_remote(upper, max_bytes)
        finally:
            storage.fault = fault

    def _read_remote(self, upper: int, max_bytes: int) -> None:
        storage, log = self._stage.bucket.storage, self._stage.log
        locations = RemoteLocations(self._stage.leader.metadata)
        reader = SegmentReader(storage, IndexCache(MemoryFileSystem(), "indexes", storage, 1 << 20))
        replica = cast(Partition, self._stage.leader.replica())
        located = locations.locate(replica, self.offset)
        wanted = ReadRange(self.offset, min(located.last_offset + 1, upper), max_bytes)
        found = reader.batches(located.segment, wanted)
        if not len(found.data):
            self.offset = located.last_offset + 1
            return
        aborted: list[AbortedTxn] = []
        further: Located | None = located
        while further is not None:
            if not further.segment.txn_index_empty:
                aborted += reader.aborted(further.segment, further.last_offset, self.offset, found.next_offset)[0]
            further = locations.with_aborted(replica, further.last_offset + 1)
        aborted += log.aborted_transactions(self.offset, found.next_offset)
        self._take(found.data, list(dict.fromkeys(aborted)))
        self.offset = found.next_offset

    def _take(self, data: Buffer, aborted: list[AbortedTxn]) -> None:
        for header, batch in self._committed(data, aborted):
            for record in iter_records(batch) if header.record_count else ():
                if record.offset >= self.offset:
                    assert record.key is not None
                    self.seen.append(Seen(record.offset, record.key, record.value))

    def _committed(self, data: Buffer, aborted: list[AbortedTxn]) -> Iterator[tuple[BatchHeader, bytes]]:
        """Drop aborted transactions as consumers do, from the first offset to the marker."""
        ahead = sorted(aborted, key=lambda txn: txn.first_offset)
        skipping: set[int] = set()
        for position, header in iter_headers(data):
            while ahead and ahead[0].first_offset <= header.last_offset:
                skipping.add(ahead.pop(0).producer_id)
            if header.is_control:
                skipping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipping):
                yield header, bytes(data[position : position + header.size])


async def a_while(seconds: float = 10) -> None:
    await asyncio.sleep(seconds)
