"""Conversion of folded state to the bytes of a snapshot (`broker.metadata.snapshot.codec`).

Sections are encoded separately, each with base offsets from 0; assembly changes only those offsets, which the CRC does
not cover. The node's own code writes the opening batch and the registry.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from broker.metadata.image.metadata_image import Provenance
from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.topic_image import TopicsImage
from broker.metadata.snapshot.codec import InvalidSnapshot, SnapshotReading, image_batches
from protocol.compiler import encode_bytes
from protocol.ids import LeaderEpoch
from protocol.messages.common_records import SnapshotFooterRecord
from protocol.messages.metadata_records import FeatureLevelRecord, RegisterBrokerRecord, RegisterControllerRecord
from protocol.primitives import Buffer
from protocol.records.batch import iter_headers, parse_header
from protocol.records.compression import Codec
from protocol.records.control import ControlType, control_batch
from protocol.records.quorum_control import ControlState
from protocol.records.reader import iter_records
from spark_jobs.metadata.byte_columns import Strings
from spark_jobs.metadata.frame_heads import MalformedLog, UnknownRecord, frame_heads, require_known
from spark_jobs.metadata.log_rows import REGISTRY, TOPIC_SECTIONS
from spark_jobs.metadata.partition_frames import BatchFacts, section_batches
from spark_jobs.metadata.registry import Registry

_BASE_OFFSET: Final = struct.Struct(">q")
_BEFORE_TOPICS: Final = (FeatureLevelRecord.API_KEY, RegisterBrokerRecord.API_KEY, RegisterControllerRecord.API_KEY)
_CONTROL_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class EncodeContext:
    """The common properties of a snapshot's batches: the metadata.version at its end, the epoch and the timestamp of
    the last record below it, and the codec of data batches.
    """

    version: MetadataVersion
    epoch: LeaderEpoch
    timestamp_ms: int
    codec: Codec = Codec.NONE


@dataclass(frozen=True, slots=True)
class EncodedSection:
    """Whole batches with base offsets from 0; the size in bytes and the record count of each."""

    section: int
    batches: Buffer
    sizes: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def records(self) -> int:
        return sum(self.counts)

    @classmethod
    def of(cls, section: int, batches: Buffer) -> "EncodedSection":
        """Read sizes and counts from the headers of batches that were kept as bytes only."""
        headers = [header for _, header in iter_headers(batches)]
        return cls(section, batches, tuple(each.size for each in headers), tuple(each.record_count for each in headers))


class EncodedRegistry(NamedTuple):
    """The opening control batch, the batches before and after the topics, and the footer's context."""

    opening: bytes
    before: EncodedSection
    after: EncodedSection
    epoch: LeaderEpoch
    timestamp_ms: int


class ReadBack(NamedTuple):
    """The properties of a valid snapshot after it was read back. `records` counts metadata records."""

    epoch: LeaderEpoch
    last_contained_log_timestamp: int
    control: ControlState | None
    records: int
    size: int


def encode_section(section: int, state: pa.Table, context: EncodeContext) -> EncodedSection:
    """Encode the SECTION_STATE of a section of topics, 0 to 31; an empty section has no batches."""
    facts = BatchFacts(context.epoch, context.timestamp_ms, context.codec)
    return EncodedSection.of(section, section_batches(state, context.version, facts))


def encode_registry(registry: Registry, control: ControlState | None, context: EncodeContext) -> EncodedRegistry:
    """Encode the opening batch, with `control` as of the snapshot's end, and the batches before and after the
    topics.
    """
    provenance = Provenance(-1, context.epoch, context.timestamp_ms)
    image = registry.image._replace(provenance=provenance, topics=TopicsImage())
    opening, *batches, _footer = filter(None, image_batches(image, control, codec=context.codec))
    before = [each for each in batches if _first_key(each) in _BEFORE_TOPICS]
    after = batches[len(before) :]
    return EncodedRegistry(
        opening,
        EncodedSection.of(REGISTRY, b"".join(before)),
        EncodedSection.of(REGISTRY, b"".join(after)),
        context.epoch,
        context.timestamp_ms,
    )


def assemble(registry: EncodedRegistry, sections: Iterable[EncodedSection]) -> Iterator[Buffer]:
    """Yield the bytes of the snapshot in pieces, exactly as a node writes them.

    `sections` of topics are in order and read one by one, so that one at a time is in memory; sections without records
    may be omitted. Raises ValueError for sections out of order.
    """
    yield registry.opening
    offset = parse_header(registry.opening).record_count
    yield from _placed(registry.before, offset)
    offset += registry.before.records
    last = -1
    for section in sections:
        if not last < section.section < TOPIC_SECTIONS:
            raise ValueError(f"section {section.section} follows section {last}")
        last = section.section
        yield from _placed(section, offset)
        offset += section.records
    yield from _placed(registry.after, offset)
    offset += registry.after.records
    footer = encode_bytes(SnapshotFooterRecord(), _CONTROL_VERSION)
    yield control_batch(
        [(ControlType.SNAPSHOT_FOOTER, footer)],
        registry.timestamp_ms,
        base_offset=offset,
        leader_epoch=registry.epoch,
    )


def read_back(chunks: Iterable[Buffer]) -> ReadBack:
    """Read a snapshot in pieces of any size and check it like a node, including the heads of its records.

    Raises InvalidSnapshot unless the snapshot is complete and all its records are known.
    """
    reading = SnapshotReading()
    records = size = 0
    for chunk in chunks:
        size += len(chunk)
        for frames in reading.feed(chunk):
            _check(frames, records)
            records += len(frames)
    reading.end()
    return ReadBack(reading.epoch, reading.last_timestamp_ms, reading.control, records, size)


def _check(frames: list[bytes], first: int) -> None:
    lengths = np.fromiter(map(len, frames), np.int64, len(frames))
    places = np.arange(first, first + len(frames))
    strings = Strings(np.frombuffer(b"".join(frames), np.uint8), np.cumsum(lengths) - lengths, lengths)
    try:
        heads = frame_heads(strings, places)
        require_known(heads.keys, heads.versions, places)
    except (MalformedLog, UnknownRecord) as error:
        raise InvalidSnapshot(str(error)) from error


def _placed(section: EncodedSection, offset: int) -> Iterator[Buffer]:
    """Return the batches with their offsets in the file."""
    view = memoryview(section.batches)
    position = 0
    for size, count in zip(section.sizes, section.counts, strict=True):
        yield _BASE_OFFSET.pack(offset)
        yield view[position + _BASE_OFFSET.size : position + size]
        position += size
        offset += count


def _first_key(batch: bytes) -> int:
    """Return the key of a batch's first record."""
    frame = next(iter_records(batch)).value or b""
    lengths = np.array([len(frame)])
    return int(frame_heads(Strings(np.frombuffer(frame, np.uint8), np.array([0]), lengths), np.array([0])).keys[0])
