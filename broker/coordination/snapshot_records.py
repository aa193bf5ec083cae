"""The content of a coordinator's snapshot: record batches in the frame of KIP-630.

| batch | base sequence | content |
|---|---|---|
| control | −1 | the snapshot's header |
| data | −1 | one record, the manifest as JSON |
| data | −1 | records to replay at once, in order; a batch of an open transaction has its producer id |
| data | bucket | records of one bucket, in any order |
| control | −1 | the footer |

The timestamp of a record is its offset in the log. A key is in one bucket, which may have several batches.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from protocol.compiler import encode_bytes
from protocol.ids import LeaderEpoch
from protocol.messages.common_records import SnapshotFooterRecord, SnapshotHeaderRecord
from protocol.primitives import Buffer
from protocol.records.batch import NO_SEQUENCE, BatchHeader
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, control_batch
from protocol.records.reader import iter_records

RECORDS_PER_BATCH: Final = 512
BYTES_PER_BATCH: Final = 1 << 20
_CONTROL_VERSION: Final = 0
_FORMAT_VERSION: Final = 1
_NO_PRODUCER: Final = -1
_EPOCH_AT: Final = 12
"""Position of the leader epoch in a batch. Neither it nor the base offset is part of the checksum."""


class KeptRecord(NamedTuple):
    """A record that a snapshot keeps; `producer_id` is −1 unless its transaction is open."""

    offset: int
    key: bytes
    value: bytes | None
    producer_id: int = _NO_PRODUCER


class Manifest(NamedTuple):
    """The partition of a snapshot, and its number of buckets, a power of two."""

    topic_id: str
    partition: int
    bucket_count: int


class SnapshotEncoder:
    """Encodes batches with consecutive offsets. `record_count` leaves out manifest and control records."""

    def __init__(self, epoch: LeaderEpoch) -> None:
        self.record_count = 0
        self._epoch = epoch
        self._next_offset = 0

    def header(self, manifest: Manifest, timestamp_ms: int) -> bytes:
        """Return the header and the manifest; `timestamp_ms` is the time of the snapshot."""
        header = SnapshotHeaderRecord(last_contained_log_timestamp=timestamp_ms)
        control = control_batch(
            [(ControlType.SNAPSHOT_HEADER, encode_bytes(header, _CONTROL_VERSION))],
            timestamp_ms,
            leader_epoch=self._epoch,
        )
        content = json.dumps({"version": _FORMAT_VERSION, **manifest._asdict()}).encode()
        self._next_offset = 2
        return control + build_batch([Record(timestamp_ms, None, content)], base_offset=1, leader_epoch=self._epoch)

    def kept(self, records: Iterable[KeptRecord]) -> Iterator[bytes]:
        """Yield batches of records that are replayed at once, in their order."""
        for producer_id, group in groupby(records, key=lambda record: record.producer_id):
            yield from self._encode(group, NO_SEQUENCE, producer_id)

    def bucket(self, bucket: int, records: Iterable[KeptRecord]) -> Iterator[bytes]:
        """Yield batches of records of a bucket."""
        return self._encode(records, bucket, _NO_PRODUCER)

    def copied(self, batch: Buffer, record_count: int) -> bytes:
        """Return a batch of another snapshot, which has equal buckets, at the next offset."""
        moved = bytearray(batch)
        moved[:8] = self._next_offset.to_bytes(8, "big")
        moved[_EPOCH_AT : _EPOCH_AT + 4] = self._epoch.to_bytes(4, "big")
        self._count(record_count)
        return bytes(moved)

    def footer(self, timestamp_ms: int) -> bytes:
        return control_batch(
            [(ControlType.SNAPSHOT_FOOTER, encode_bytes(SnapshotFooterRecord(), _CONTROL_VERSION))],
            timestamp_ms,
            base_offset=self._next_offset,
            leader_epoch=self._epoch,
        )

    def _encode(self, records: Iterable[KeptRecord], sequence: int, producer_id: int) -> Iterator[bytes]:
        chunk: list[Record] = []
        size = 0
        for record in records:
            chunk.append(Record(record.offset, record.key, record.value))
            size += len(record.key) + len(record.value or b"")
            if len(chunk) == RECORDS_PER_BATCH or size >= BYTES_PER_BATCH:
                yield self._batch(chunk, sequence, producer_id)
                chunk, size = [], 0
        if chunk:
            yield self._batch(chunk, sequence, producer_id)

    def _batch(self, records: list[Record], sequence: int, producer_id: int) -> bytes:
        batch = build_batch(
            records,
            base_offset=self._next_offset,
            leader_epoch=self._epoch,
            producer_id=producer_id,
            base_sequence=sequence,
            transactional=producer_id != _NO_PRODUCER,
        )
        self._count(len(records))
        return batch

    def _count(self, records: int) -> None:
        self._next_offset += records
        self.record_count += records


def read_manifest(batch: Buffer) -> Manifest | None:
    """Return the manifest in the first data batch of a snapshot; None for an unknown format."""
    try:
        content = json.loads(next(iter_records(batch)).value or b"")
        if content.pop("version") != _FORMAT_VERSION:
            return None
        return Manifest(**content)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def read_kept(batch: Buffer, header: BatchHeader) -> Iterator[KeptRecord]:
    """Yield the records of a data batch. Raise MalformedRecords."""
    producer_id = header.producer_id if header.is_transactional else _NO_PRODUCER
    for record in iter_records(batch):
        yield KeptRecord(record.timestamp, record.key or b"", record.value, producer_id)
