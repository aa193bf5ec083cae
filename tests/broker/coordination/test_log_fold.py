"""A load from a snapshot and the log after it gives the offsets that a replay of the whole log gives."""

import random
from collections.abc import Iterable

import pytest

from broker.coordination.log_fold import LogFold, merged
from broker.coordination.parked_records import ParkedRecords
from broker.coordination.snapshot_records import KeptRecord, Manifest, SnapshotEncoder, read_kept, read_manifest
from broker.groups.metrics import GroupMetrics
from broker.groups.offsets import OffsetStore
from broker.groups.records import (
    CommittedOffset,
    OffsetCommitted,
    OffsetKey,
    OffsetRemoved,
    decode_record,
    offset_committed,
    offset_removed,
)
from broker.groups.replay import GROUP_FOLD, ParkedOffsets
from protocol.ids import LeaderEpoch
from protocol.records.batch import parse_header

GROUPS = "ghijk"
KEYS = [OffsetKey(group, topic, 0) for group in GROUPS for topic in "tu"]
PRODUCERS = (7, 8)
EPOCH = LeaderEpoch(3)
Marker = tuple[int, int, bool]
"""Offset, producer id, and True for COMMIT."""


def random_log(rng: random.Random, size: int) -> list[KeptRecord | Marker]:
    log: list[KeptRecord | Marker] = []
    for offset in range(size):
        key, producer = rng.choice(KEYS), rng.choice((-1, -1, *PRODUCERS))
        match rng.randrange(6):
            case 0:
                log.append((offset, rng.choice(PRODUCERS), rng.random() < 0.6))
            case 1:
                log.append(KeptRecord(offset, offset_removed(key).key, None))
            case _:
                record = offset_committed(key, CommittedOffset(offset * 10, LeaderEpoch(1), "", 1))
                log.append(KeptRecord(offset, record.key, record.value, producer))
    return log


def fold(found: LogFold, log: Iterable[KeptRecord | Marker]) -> LogFold:
    for entry in log:
        if isinstance(entry, KeptRecord):
            found.add(entry)
        else:
            offset, producer_id, committed = entry
            found.end_transaction(producer_id, committed, offset)
    return found


class Offsets:
    """An offset store with parked records, as a shard has it."""

    def __init__(self) -> None:
        self.parking = ParkedOffsets(self.replay)
        self.store = OffsetStore(GroupMetrics(), self.parking.replay_group)

    def replay(self, entry: KeptRecord | Marker) -> None:
        if not isinstance(entry, KeptRecord):
            self.store.end_transaction(entry[1], entry[2])
            return
        event = decode_record(entry.key, entry.value)
        if isinstance(event, OffsetRemoved):
            self.store.replay_removal(event.key)
        else:
            assert isinstance(event, OffsetCommitted)
            self.store.replay_commit(event.key, event.value, entry.offset, entry.producer_id)

    def contents(self) -> list[object]:
        return [
            *((key, self.store.get(key), self.store.is_pending(key)) for key in KEYS),
            *((group, self.store.has_open_transaction(group), self.store.has_offsets(group)) for group in GROUPS),
        ]


class Taken:
    """A snapshot as its batches."""

    def __init__(self, found: LogFold, former: "Taken | None" = None) -> None:
        self.end_offset = found.end_offset
        self.bucket_count = found.bucket_count
        encoder = SnapshotEncoder(EPOCH)
        header = encoder.header(Manifest("id", 0, found.bucket_count), 1_000)
        manifest = header[parse_header(header).size :]
        assert read_manifest(manifest) == Manifest("id", 0, found.bucket_count)
        self.kept = list(encoder.kept(found.kept()))
        self.buckets: dict[int, list[bytes]] = {}
        former_buckets = {} if former is None else former.buckets
        for bucket in former_buckets.keys() | found.buckets.keys():
            earlier = (record for batch in former_buckets.get(bucket, ()) for record in records_of(batch))
            changes = found.buckets.get(bucket, {})
            self.buckets[bucket] = list(encoder.bucket(bucket, merged(earlier, changes)))
        assert parse_header(encoder.footer(1_000)).base_offset == encoder.record_count + 2


def records_of(batch: bytes) -> Iterable[KeptRecord]:
    return read_kept(batch, parse_header(batch))


def loaded(snapshot: Taken, tail: Iterable[KeptRecord | Marker], limit: int) -> Offsets:
    found = Offsets()
    after = LogFold(GROUP_FOLD, snapshot.bucket_count)
    for batch in snapshot.kept:
        for record in records_of(batch):
            after.restore(record)
    fold(after, tail)
    parked = ParkedRecords(snapshot.bucket_count, snapshot.buckets, after.buckets)
    for record in (*after.open_transactions(), *parked.take_large(limit)):
        found.replay(record)
    found.parking.park(parked)
    return found


@pytest.mark.parametrize("seed", range(300))
def test_snapshot_and_tail_give_the_state_of_the_whole_log(seed: int) -> None:
    rng = random.Random(seed)
    log = random_log(rng, rng.randrange(1, 80))
    first, second, end = sorted(rng.randrange(len(log) + 1) for _ in range(3))
    bucket_count = rng.choice((1, 2, 4))
    former = Taken(fold(LogFold(GROUP_FOLD, bucket_count), log[:first]))
    later = LogFold(GROUP_FOLD, bucket_count, end_offset=first)
    for batch in former.kept:
        for record in records_of(batch):
            later.restore(record)
    snapshot = Taken(fold(later, log[first:second]), former)
    assert snapshot.end_offset == second
    found, whole = loaded(snapshot, log[second:end], rng.choice((2, 1_000))), Offsets()
    for entry in log[:end]:
        whole.replay(entry)
    for entry in log[end:]:  # the coordinator serves requests while records are parked
        whole.replay(entry)
        found.replay(entry)
        if rng.random() < 0.1:
            found.parking.replay_some()
    assert found.contents() == whole.contents()
    while not found.parking.is_empty:
        found.parking.replay_some()
    assert found.contents() == whole.contents()


def test_copied_batch_keeps_its_checksum_and_gets_the_next_offset() -> None:
    encoder = SnapshotEncoder(LeaderEpoch(1))
    encoder.header(Manifest("id", 0, 1), 5)
    (batch,) = encoder.bucket(3, [KeptRecord(1 << 40, b"key", b"value")])
    after = SnapshotEncoder(LeaderEpoch(2))
    after.header(Manifest("id", 0, 1), 5)
    (first,) = after.bucket(0, [KeptRecord(7, b"other", b"value")])
    copied = after.copied(batch, 1)
    header = parse_header(copied)
    assert (header.base_offset, header.leader_epoch, header.base_sequence) == (3, 2, 3)
    assert header.crc == parse_header(batch).crc
    assert list(read_kept(copied, header)) == [KeptRecord(1 << 40, b"key", b"value")]
    assert parse_header(first).next_offset == header.base_offset
