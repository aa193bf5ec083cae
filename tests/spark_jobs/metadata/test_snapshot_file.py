"""The bytes of snapshots with unusual content, and their validation."""

import random

import pytest

from broker.metadata.image.features import feature_record
from broker.metadata.image.metadata_image import MetadataImage, Provenance
from broker.metadata.image.metadata_version import METADATA_VERSION
from broker.metadata.image.records import MetadataRecord, encode_record
from broker.metadata.snapshot.codec import FRAME_BYTES_PER_BATCH, RECORDS_PER_BATCH, InvalidSnapshot, image_batches
from protocol.errors import EncodeError
from protocol.ids import LeaderEpoch
from protocol.messages.common_records import VotersRecord, VotersRecordVoter
from protocol.messages.metadata_records import NoOpRecord, PartitionRecord, TopicRecord
from protocol.primitives import Uuid
from protocol.records.batch import iter_headers
from protocol.records.builder import build_value_batch
from protocol.records.quorum_control import ControlState
from spark_jobs.metadata.log_rows import REGISTRY
from spark_jobs.metadata.registry import Registry
from spark_jobs.metadata.snapshot_file import (
    EncodeContext,
    EncodedSection,
    assemble,
    encode_registry,
    encode_section,
    read_back,
)
from tests.broker.metadata.images import directory_of, image_of
from tests.spark_jobs.metadata.logs import FOREVER
from tests.spark_jobs.metadata.test_sections import rows_of_frames
from tests.support.harnesses.single_process import SingleProcess


def snapshot_of(records: list[MetadataRecord], control: ControlState | None = None) -> tuple[bytes, bytes]:
    """Return (the job's, the node's) snapshot of records in one batch."""
    image = image_of(records)
    job = SingleProcess()
    frames = [_frame(record) for record in records]
    job.take(rows_of_frames(*frames, end=FOREVER))
    job.control = control
    placed = image._replace(provenance=Provenance(image.offset, LeaderEpoch(1), 5))
    return b"".join(job.snapshot()), b"".join(image_batches(placed, control))


def _frame(record: MetadataRecord) -> bytes:
    for version in range(record.MAX_VERSION, -1, -1):
        try:
            return encode_record(record, version)
        except EncodeError:
            continue
    raise AssertionError(record)


def partition(topic_id: Uuid, index: int, count: int, in_sync: int, directories: int | None = None) -> PartitionRecord:
    record = PartitionRecord(index, topic_id, list(range(count)), list(range(in_sync)), leader=0)
    record.leader_epoch, record.partition_epoch = index, 2 * index
    each = [directory_of(broker) for broker in range(count)]
    record.directories = each if directories is None else each[:directories]
    return record


@pytest.mark.parametrize("level", [7, 14, 17, 20, 22, 23, 29])
def test_lists_of_any_length_equal_the_nodes_at_any_level(level: int) -> None:
    topic_id = Uuid(b"\x42" * 16)
    records: list[MetadataRecord] = [feature_record(METADATA_VERSION, level).message, TopicRecord("t", topic_id)]
    draw = random.Random(level)
    for index in range(300):
        count = draw.choice([0, 1, 2, 3, 3, 31, 126, 127, 128, 200])
        record = partition(topic_id, index, count, draw.choice([0, count // 2, count]), draw.choice([None, None, 0]))
        match draw.randrange(8):
            case 0:
                record.removing_replicas = list(range(draw.choice([1, 126, 127])))
            case 1:
                record.adding_replicas = list(range(draw.choice([1, 126, 127])))
            case 2:
                record.eligible_leader_replicas = [1]
            case 3:
                record.last_known_elr = [2, 3]
            case 4:
                record.leader_recovery_state = 1
        records.append(record)
    ours, nodes = snapshot_of(records)
    assert ours == nodes


def test_names_of_any_length_equal_the_nodes() -> None:
    names = ["n" * size for size in (1, 62, 63, 64, 125, 126, 127, 128, 249, 16_000)] + ["é" * 62, "é" * 63, "é" * 64]
    records: list[MetadataRecord] = [
        TopicRecord(name, Uuid(bytes([random.Random(number).randrange(256)]) + bytes([number]) * 15))
        for number, name in enumerate(names)
    ]
    ours, nodes = snapshot_of(records)
    assert ours == nodes


@pytest.mark.parametrize("count", [RECORDS_PER_BATCH - 1, RECORDS_PER_BATCH, 3 * RECORDS_PER_BATCH - 1])
def test_batches_are_full_at_1024_records(count: int) -> None:
    topic_id = Uuid(b"\xff" * 16)
    records: list[MetadataRecord] = [TopicRecord("t", topic_id)]
    records += [partition(topic_id, index, 3, 3) for index in range(count)]
    ours, nodes = snapshot_of(records)
    assert ours == nodes
    assert max(header.record_count for _, header in iter_headers(ours)) == min(count + 1, RECORDS_PER_BATCH)


def test_batches_end_before_8_000_000_bytes_of_frames() -> None:
    topic_id = Uuid(bytes(16))
    each = 2_000
    records: list[MetadataRecord] = [feature_record(METADATA_VERSION, 29).message, TopicRecord("t", topic_id)]
    ids = list(range(each))
    records += [PartitionRecord(index, topic_id, ids, ids, directories=[]) for index in range(600)]
    ours, nodes = snapshot_of(records)
    assert ours == nodes
    assert max(header.size for _, header in iter_headers(ours)) - FRAME_BYTES_PER_BATCH + 50_000 > 0


def test_voters_are_written_at_the_start() -> None:
    control = ControlState(1, VotersRecord(voters=[VotersRecordVoter(id) for id in (3, 1)]))
    ours, nodes = snapshot_of([NoOpRecord()], control)
    assert ours == nodes
    found = read_back([ours])
    assert found.control is not None
    assert found.control.kraft_version == 1
    assert (found.epoch, found.last_contained_log_timestamp, found.records, found.size) == (1, 5, 0, len(ours))


@pytest.fixture(scope="module")
def pieces() -> list[bytes]:
    topic_id = Uuid(b"\x42" * 16)
    records: list[MetadataRecord] = [TopicRecord("t", topic_id), *(partition(topic_id, n, 3, 3) for n in range(50))]
    job = SingleProcess()
    job.take(rows_of_frames(*map(_frame, records)))
    return [bytes(piece) for piece in job.snapshot()]


def test_snapshot_is_read_back_in_pieces_of_any_size(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    whole = read_back(pieces)
    assert (whole.records, whole.size) == (51, len(data))
    for size in (1, 61, 1_000):
        assert read_back([data[at : at + size] for at in range(0, len(data), size)]) == whole


def test_damaged_snapshot_is_refused(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    for broken in (data[:-1], data[1:], b"", data + data, data[:100] + b"x" + data[101:]):
        with pytest.raises(InvalidSnapshot):
            read_back([broken])


def test_unknown_records_in_a_snapshot_are_refused(pieces: list[bytes]) -> None:
    opening, *_, footer = [b"".join(pieces)[at : at + header.size] for at, header in iter_headers(b"".join(pieces))]
    unknown = build_value_batch([b"\x01\x05\x09\x00"], 5, base_offset=1, leader_epoch=LeaderEpoch(1))
    footer = (2).to_bytes(8, "big") + footer[8:]
    with pytest.raises(InvalidSnapshot, match="API key 5, version 9"):
        read_back([opening, unknown, footer])


def test_sections_restored_from_bytes_assemble_to_the_snapshot() -> None:
    job = SingleProcess()
    topic_id = Uuid(b"\x42" * 16)
    job.take(rows_of_frames(_frame(TopicRecord("t", topic_id)), _frame(partition(topic_id, 0, 3, 3))))
    context = EncodeContext(job.registry.version, LeaderEpoch(job.epoch), job.timestamp_ms)
    registry = encode_registry(job.registry, None, context)
    sections = [encode_section(number, state, context) for number, state in enumerate(job.sections)]
    kept = [EncodedSection.of(each.section, each.batches) for each in sections if each.records]
    assert [each.section for each in kept] == [8]
    assert b"".join(assemble(registry, kept)) == b"".join(assemble(registry, sections)) == b"".join(job.snapshot())
    for wrong in ([sections[3], sections[2]], [sections[3], sections[3]], [EncodedSection(REGISTRY, b"", (), ())]):
        with pytest.raises(ValueError, match="follows section"):
            list(assemble(registry, wrong))


def test_snapshot_of_an_empty_cluster_equals_the_nodes() -> None:
    context = EncodeContext(Registry().version, LeaderEpoch(0), 0)
    data = b"".join(assemble(encode_registry(Registry(), None, context), []))
    assert data == b"".join(image_batches(MetadataImage(), None))
