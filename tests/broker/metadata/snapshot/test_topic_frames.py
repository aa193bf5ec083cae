"""The packed frames of topics and partitions, compared with the record codec (`records.py`)."""

from random import Random

import pytest

from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.records import decode_record
from broker.metadata.snapshot.topic_frames import (
    FRAMES_PER_LIST,
    PARTITION_KEY,
    PartitionFrameReader,
    partition_topic_id,
    topic_frames,
)
from protocol.errors import DecodeError
from protocol.messages.metadata_records import PartitionRecord
from tests.broker.metadata.histories import History, folded
from tests.broker.metadata.images import image_with


def partition_frames(seed: int) -> list[bytes]:
    image = folded(History(seed).batches)
    lists = topic_frames(image.topics, image.topics.ids(), image.features.version)
    frames = [frame for frames in lists for frame in frames]
    return [frame for frame in frames if frame[1] == PARTITION_KEY]


@pytest.mark.parametrize("seed", range(8))
def test_packed_reader_equals_the_record_decoder(seed: int) -> None:
    reader, frames = PartitionFrameReader(), partition_frames(seed)
    assert frames
    for frame in frames:
        record = decode_record(frame)
        assert isinstance(record, PartitionRecord)
        usual = reader.read(frame)
        if usual is not None:
            registration = PartitionRegistration.from_record(record)
            assert usual == (record.topic_id, record.partition_id, registration)


@pytest.mark.parametrize("seed", range(8))
def test_usual_form_is_always_a_valid_partition(seed: int) -> None:
    """Random damage never passes as the usual form unless it parses."""
    random, reader, taken, left = Random(seed), PartitionFrameReader(), 0, 0
    for frame in partition_frames(seed):
        for damaged in (frame, *(_damaged(frame, random) for _ in range(40))):
            topic_id, usual = partition_topic_id(damaged), reader.read(damaged)
            assert (topic_id is None) == (usual is None)
            if topic_id is None or usual is None:
                left += 1
                continue
            taken += 1
            record = decode_record(damaged)
            assert isinstance(record, PartitionRecord)
            assert topic_id == usual[0] == record.topic_id
    assert min(taken, left) > 100


def test_large_topic_is_yielded_in_short_lists() -> None:
    image = image_with(topics={"t": 2 * FRAMES_PER_LIST})
    lists = topic_frames(image.topics, image.topics.ids(), image.features.version)
    assert [len(frames) for frames in lists] == [FRAMES_PER_LIST, FRAMES_PER_LIST, 1]


def test_malformed_frames_are_left_to_the_record_decoder() -> None:
    for frame in (b"", b"\x01\x03", b"\x01\x03\x02" + bytes(60)):
        assert partition_topic_id(frame) is None
        assert PartitionFrameReader().read(frame) is None
        with pytest.raises(DecodeError):
            decode_record(frame)


def _damaged(frame: bytes, random: Random) -> bytes:
    """Return the frame with a byte changed, removed or inserted."""
    at, value = random.randrange(2, len(frame)), bytes((random.choice((0, 1, 2, 4, random.randrange(256))),))
    return frame[:at] + random.choice((value, b"", value + frame[at : at + 1])) + frame[at + 1 :]
