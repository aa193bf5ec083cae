"""Snapshot files of the metadata log: `bootstrap.checkpoint`, the 0-0 checkpoint and all others.

A snapshot is a sequence of record batches, magic 2, with offsets from 0 (KIP-630, KIP-853). `image_batches` writes
canonical bytes: the file of a SnapshotId is identical on every node, independent of what the node loaded and replayed
before, and of the program that folded the records. This docstring is the definition.

**Id.** (E, e) stands for the records of the log below offset E; e is the epoch of the last of them and T the timestamp
of its batch (the maximum in the batch's header, control batches count). Records of a metadata transaction that is open
at E are not part of it. E is the end of a batch.

**Batches.** Every batch carries epoch e, no producer (-1, -1, -1), CreateTime, and T as base and maximum timestamp;
record offsets follow on from 0 through the whole file. Records have no headers, data records a null key.

1. A control batch: SnapshotHeader with T, all its records of version 0; if kraft.version as of E - 1 is 1 or more, then
   also KRaftVersion, and the voters as of E - 1 if records name them: by ascending id, each with its listeners in the
   order of the record that set them.
2. Data batches in *sections*: features · registrations · topics whose id begins with the five bits 00000 · … · topics
   whose id begins with 11111 · configs · client quotas · producer ids · ACLs · SCRAM credentials · delegation tokens.
   Every section begins a new batch; a section without records is omitted. Within a section a batch ends after 1,024
   records, or before the record whose frame would make the frames of the batch more than 8,000,000 bytes.
3. A control batch with the SnapshotFooter alone.

32 topic sections let as many workers encode a large cluster independently, each 32,000 of a million partitions. They
cost a small cluster 61 bytes per section with topics.

**Order.** Features: metadata.version, then the others by name. Registrations: brokers by id, then controllers by id.
Topics by id, unsigned byte by byte, each followed by its partitions by index. Configs by (resource type, resource name,
key), quotas by (entity, key), where an entity is its (type, name) parts by type and a default name goes first; ACLs by
id; credentials by (mechanism, user); tokens by id. Strings compare by code point, which is the order of their UTF-8.

**Records** have the version that metadata.version prescribes and the frame of `records.py`. What a log record lists, a
snapshot lists in that order: replicas, in-sync sets, endpoints, renewers. A registration has its features by name and
its directories by id. A partition has directories for all its replicas (the zero id where none was recorded) from the
version on that knows them; eligible leaders are left out when there are none, never written as empty; a partition's
epochs are those of its record plus one for each change (the leader epoch: for each that names a leader). Broker id and
epoch of ProducerIds are -1. Unknown tagged fields are dropped.

**Compression** is off unless a setting names a codec, which then holds for the data batches alone, at the fixed level
of `compression.py`; then the bytes also depend on the codec's library.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple, TypeAlias, TypeVar

from broker.metadata.image.config_image import ConfigsImage, config_record
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.records import MetadataRecord, VersionedRecord, decode_record, encode_record
from broker.metadata.image.slices import UNITS_PER_STEP, Steps, sorted_in_steps
from broker.metadata.image.topic_image import TopicsImage
from broker.metadata.snapshot.topic_frames import topic_frames
from protocol.compiler import decode, encode_bytes
from protocol.errors import DecodeError
from protocol.ids import EPOCH_ZERO, LeaderEpoch
from protocol.messages.common_records import (
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from protocol.primitives import Buffer, Uuid
from protocol.records.batch import HEADER_SIZE, NO_LEADER_EPOCH, BatchHeader, crc_is_valid, parse_header
from protocol.records.builder import build_value_batch
from protocol.records.compression import Codec
from protocol.records.control import ControlType, control_batch, control_type
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.quorum_control import ControlState, control_records, read_control_state
from protocol.records.reader import iter_records

R = TypeVar("R")

RECORDS_PER_BATCH: Final = 1_024
# With 1,024 records of at most 20 bytes besides the frame, a batch stays below the 8 MiB that readers accept.
FRAME_BYTES_PER_BATCH: Final = 8_000_000
MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
# Limit of a decompressed batch: writers of metadata create batches of at most 8 MiB uncompressed.
MAX_OPENED_BYTES: Final = 2 * MAX_BATCH_BYTES
# Topic sections are distinguished by this many leading bits of the topic id.
TOPIC_BUCKET_BITS: Final = 5
_CONTROL_VERSION: Final = 0

_PAUSE: Final = b""
_SECTION_END: Final = None
_Frames: TypeAlias = Iterator[list[bytes] | None]
"""Short lists of frames, with `_SECTION_END` between sections, and an empty list where the writer yields without a
complete batch.
"""


class InvalidSnapshot(Exception):
    """Bytes that are not a complete valid snapshot."""


class Snapshot(NamedTuple):
    """A decoded snapshot; `last_timestamp_ms` is the timestamp of the last record that it stands for."""

    last_timestamp_ms: int
    epoch: LeaderEpoch
    control: ControlState | None
    records: list[MetadataRecord]


# Writing


def image_batches(image: MetadataImage, control: ControlState | None, *, codec: Codec = Codec.NONE) -> Iterator[bytes]:
    """Yield the canonical snapshot of an image at its offset, batch by batch; b"" lets other work run.

    A step takes some two milliseconds. `control` is the control state at the image's offset.
    """
    return _batches(
        _sections(image),
        epoch=image.epoch,
        last_timestamp_ms=image.provenance.timestamp_ms,
        batch_timestamp_ms=image.provenance.timestamp_ms,
        control=control,
        codec=codec,
    )


def snapshot_batches(
    records: Iterable[VersionedRecord],
    *,
    epoch: LeaderEpoch,
    last_timestamp_ms: int,
    batch_timestamp_ms: int,
    control: ControlState | None = None,
) -> Iterator[bytes]:
    """Yield the batches of a snapshot with these records as its only section, as formatting writes it."""
    return _batches(
        _encoded(records),
        epoch=epoch,
        last_timestamp_ms=last_timestamp_ms,
        batch_timestamp_ms=batch_timestamp_ms,
        control=control,
        codec=Codec.NONE,
    )


def bootstrap_checkpoint(records: Iterable[VersionedRecord], now_ms: int) -> bytes:
    """Return the content of `bootstrap.checkpoint`, the first records of an empty log."""
    return b"".join(snapshot_batches(records, epoch=EPOCH_ZERO, last_timestamp_ms=0, batch_timestamp_ms=now_ms))


def voters_checkpoint(control: ControlState, now_ms: int) -> bytes:
    """Return the content of the 0-0 checkpoint, the initial voters of a dynamic quorum."""
    return b"".join(
        snapshot_batches((), epoch=EPOCH_ZERO, last_timestamp_ms=now_ms, batch_timestamp_ms=now_ms, control=control)
    )


def _batches(
    frames: _Frames,
    *,
    epoch: LeaderEpoch,
    last_timestamp_ms: int,
    batch_timestamp_ms: int,
    control: ControlState | None,
    codec: Codec,
) -> Iterator[bytes]:
    opening = [
        (ControlType.SNAPSHOT_HEADER, _control(SnapshotHeaderRecord(last_contained_log_timestamp=last_timestamp_ms)))
    ]
    if control is not None and control.kraft_version > 0:
        opening += control_records(_in_order(control))
    yield control_batch(opening, batch_timestamp_ms, base_offset=0, leader_epoch=epoch)
    offset = len(opening)
    for gathered in _gathered(frames):
        if gathered:
            yield build_value_batch(gathered, batch_timestamp_ms, base_offset=offset, leader_epoch=epoch, codec=codec)
            offset += len(gathered)
        else:
            yield _PAUSE
    footer = (ControlType.SNAPSHOT_FOOTER, _control(SnapshotFooterRecord()))
    yield control_batch([footer], batch_timestamp_ms, base_offset=offset, leader_epoch=epoch)


def _gathered(frames: _Frames) -> Iterator[list[bytes]]:
    """Yield the frames of each batch; an empty list for a pause."""
    batch: list[bytes] = []
    size = 0
    for added in frames:
        if added is None:
            if batch:
                yield batch
            batch, size = [], 0
            continue
        if not added:
            yield []
            continue
        added_bytes = sum(map(len, added))
        if len(batch) + len(added) <= RECORDS_PER_BATCH and size + added_bytes <= FRAME_BYTES_PER_BATCH:
            batch += added
            size += added_bytes
            continue
        for frame in added:
            size += len(frame)
            if len(batch) == RECORDS_PER_BATCH or (size > FRAME_BYTES_PER_BATCH and batch):
                yield batch
                batch, size = [], len(frame)
            batch.append(frame)
    if batch:
        yield batch


def _sections(image: MetadataImage) -> _Frames:
    version = image.features.version
    yield from _encoded(image.features.write())
    yield _SECTION_END
    yield from _encoded(image.brokers.write(version))
    yield _SECTION_END
    yield from _topic_sections(image.topics, version)
    yield from _config_frames(image.configs)
    for part in (
        image.client_quotas.write(),
        image.producer_ids.write(),
        image.acls.write(),
        image.scram.write(version),
        image.delegation_tokens.write(version),
    ):
        yield _SECTION_END
        yield from _encoded(part)


def _topic_sections(topics: TopicsImage, version: MetadataVersion) -> _Frames:
    buckets = yield from _pausing(_by_leading_bits(topics.ids()))
    per_section = len(buckets) >> TOPIC_BUCKET_BITS
    for first in range(0, len(buckets), per_section):
        for bucket in filter(None, buckets[first : first + per_section]):
            ids = yield from _pausing(sorted_in_steps(bucket))
            yield from topic_frames(topics, ids, version)
        yield _SECTION_END


def _by_leading_bits(ids: Iterator[Uuid]) -> Steps[list[list[Uuid]]]:
    """Distribute topic ids by their first 10 bits: random ids give buckets that are quick to sort."""
    buckets: list[list[Uuid]] = [[] for _ in range(1 << 10)]
    while some := list(islice(ids, UNITS_PER_STEP)):
        for topic_id in some:
            buckets[topic_id[0] << 2 | topic_id[1] >> 6].append(topic_id)
        yield
    return buckets


def _config_frames(configs: ConfigsImage) -> _Frames:
    for resource in (yield from _pausing(sorted_in_steps(configs.resources))):
        for key, value in sorted(configs.resources[resource].items()):
            yield [encode_record(*config_record(resource, key, value))]


def _pausing(steps: Steps[R]) -> Generator[list[bytes], None, R]:
    """Yield a pause for each step; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: R = stop.value
            return result
        yield []


def _encoded(records: Iterable[VersionedRecord]) -> Iterator[list[bytes]]:
    return ([encode_record(*record)] for record in records)


def _in_order(control: ControlState) -> ControlState:
    """Return the control state with voters by id."""
    if control.voters is None:
        return control
    voters = sorted(control.voters.voters, key=lambda voter: (voter.voter_id, voter.voter_directory_id))
    return control._replace(voters=VotersRecord(voters=voters))


# Reading


class SnapshotReading:
    """Reads a snapshot in pieces of any size, checks it, and returns the frames of its data batches.

    `last_timestamp_ms` and `epoch` are known after the first batch, `control` after `end`. The reader buffers at most a
    piece and an incomplete batch.
    """

    def __init__(self) -> None:
        self.last_timestamp_ms = -1
        self.epoch = NO_LEADER_EPOCH
        self.control: ControlState | None = None
        self._rest = b""
        self._consumed = 0
        self._next_offset = 0
        self._ended = False

    def feed(self, piece: Buffer) -> Iterator[list[bytes]]:
        """Yield the frames of each data batch that the piece completes. Exhaust the iterator before the next call.

        Raises InvalidSnapshot for damaged or misplaced bytes, and for bytes that are not a snapshot.
        """
        data = b"".join((self._rest, piece)) if self._rest else piece
        position = 0
        while len(data) - position >= HEADER_SIZE:
            header = self._header(data, position)
            if len(data) - position < header.size:
                break
            frames = self._take(header, data, position)
            if frames is not None:
                yield frames
            position += header.size
        self._consumed += position
        self._rest = bytes(memoryview(data)[position:])

    def end(self) -> None:
        """Check that the snapshot is complete. Raises InvalidSnapshot."""
        if not self._next_offset and not self._rest:
            raise InvalidSnapshot("the snapshot is empty")
        if self._rest:
            raise InvalidSnapshot(f"the batch at byte {self._consumed} is cut short")
        if not self._ended:
            raise InvalidSnapshot("the snapshot does not end with its footer")

    def _header(self, data: Buffer, position: int) -> BatchHeader:
        where = f"at byte {self._consumed + position}"
        try:
            header = parse_header(data, position)
        except MalformedBatch as error:
            raise InvalidSnapshot(f"{where}: {error}") from error
        if self._ended:
            raise InvalidSnapshot(f"a batch follows the footer {where}")
        if header.size > MAX_BATCH_BYTES:
            raise InvalidSnapshot(f"the batch {where} has {header.size} bytes")
        return header

    def _take(self, header: BatchHeader, data: Buffer, position: int) -> list[bytes] | None:
        where = self._consumed + position
        if header.base_offset != self._next_offset or not crc_is_valid(data, position, header.size):
            raise InvalidSnapshot(f"the batch at byte {where} is damaged or out of place")
        first = not self._next_offset
        self._next_offset = header.next_offset
        try:
            if first:
                self.last_timestamp_ms, self.epoch = _header_timestamp(header, data, position), header.leader_epoch
            if header.is_control:
                self.control = read_control_state(data, position, self.control)
                self._ended = control_type(next(iter_records(data, position)).key) is ControlType.SNAPSHOT_FOOTER
                return None
            return [record.value or b"" for record in iter_records(data, position, limit=MAX_OPENED_BYTES)]
        except (MalformedBatch, MalformedRecords, StopIteration) as error:
            raise InvalidSnapshot(f"the batch at byte {where} does not parse: {error}") from error


def read_snapshot(data: Buffer) -> Snapshot:
    """Return a complete snapshot. Raises InvalidSnapshot unless header, footer, offsets and checksums are valid."""
    reading = SnapshotReading()
    records: list[MetadataRecord] = []
    try:
        for frames in reading.feed(data):
            records += map(decode_record, frames)
    except DecodeError as error:
        raise InvalidSnapshot(f"a record does not parse: {error}") from error
    reading.end()
    return Snapshot(reading.last_timestamp_ms, reading.epoch, reading.control, records)


def _header_timestamp(header: BatchHeader, data: Buffer, position: int) -> int:
    if header.is_control:
        record = next(iter_records(data, position))
        if control_type(record.key) is ControlType.SNAPSHOT_HEADER:
            try:
                message, _ = decode(SnapshotHeaderRecord, record.value or b"", _CONTROL_VERSION)
            except DecodeError as error:
                raise MalformedRecords(str(error)) from error
            return message.last_contained_log_timestamp
    raise InvalidSnapshot("the snapshot does not begin with its header")


def _control(message: SnapshotHeaderRecord | SnapshotFooterRecord) -> bytes:
    return encode_bytes(message, _CONTROL_VERSION)
