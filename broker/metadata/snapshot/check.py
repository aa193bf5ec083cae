"""Validation of a snapshot from an untrusted source without loading it.

Everything is decoded. Topics and partitions, of which there may be a million, are only tracked by id; all other records
are replayed. The check keeps one batch, the topics' names and ids, and the image of the other records.
"""

from typing import Final

from broker.metadata.image.features import UnsupportedFeatureLevel
from broker.metadata.image.metadata_image import EMPTY_IMAGE
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.records import FRAME_VERSION, InvalidMetadata, decode_record
from broker.metadata.snapshot.codec import InvalidSnapshot, SnapshotReading
from broker.metadata.snapshot.fold import SnapshotFold
from broker.metadata.snapshot.topic_frames import PARTITION_KEY, partition_topic_id
from protocol.errors import DecodeError
from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import PartitionRecord, TopicRecord
from protocol.primitives import Buffer, Uuid

_PARTITION: Final = bytes((FRAME_VERSION, PARTITION_KEY))
_TOPIC: Final = bytes((FRAME_VERSION, TopicRecord.API_KEY))


class SnapshotCheck:
    """Checks the bytes of one snapshot in pieces of any size. `records` counts its metadata records."""

    def __init__(self, epoch: LeaderEpoch) -> None:
        """Expect the epoch in the snapshot's name."""
        self._epoch = epoch
        self._reading = SnapshotReading()
        self._fold = SnapshotFold(EMPTY_IMAGE)
        self._ids: set[Uuid] = set()
        self._names: set[str] = set()
        self.records = 0

    @property
    def last_timestamp_ms(self) -> int:
        """The last contained log timestamp in the header; -1 before the header."""
        return self._reading.last_timestamp_ms

    def feed(self, piece: Buffer) -> None:
        """Check the next bytes. Raises InvalidSnapshot for any invalid content."""
        try:
            for frames in self._reading.feed(piece):
                self.records += len(frames)
                self._take(frames)
        except (DecodeError, InvalidMetadata, UnsupportedFeatureLevel) as error:
            raise InvalidSnapshot(str(error)) from error

    def end(self) -> None:
        """Check the end of the snapshot. Raises InvalidSnapshot."""
        self._reading.end()
        if self._reading.epoch != self._epoch:
            raise InvalidSnapshot(f"the batches have epoch {self._reading.epoch}, the name has {self._epoch}")

    def _take(self, frames: list[bytes]) -> None:
        others: list[bytes] = []
        ids = self._ids
        for frame in frames:
            if frame.startswith(_PARTITION):
                if (partition_topic_id(frame) or _topic_of(frame)) not in ids:
                    raise InvalidMetadata("a snapshot holds a partition of a topic that it does not contain")
            elif frame.startswith(_TOPIC):
                self._take_topic(frame)
            else:
                others.append(frame)
        self._fold.add(others)

    def _take_topic(self, frame: bytes) -> None:
        record = decode_record(frame)
        assert isinstance(record, TopicRecord)
        if record.topic_id in self._ids or record.name in self._names:
            raise InvalidMetadata(f"a snapshot holds topic {record.name} twice")
        self._ids.add(record.topic_id)
        self._names.add(record.name)


def _topic_of(frame: bytes) -> Uuid:
    """Return the topic id in a partition frame of any form, after checking that the partition can be registered."""
    record = decode_record(frame)
    assert isinstance(record, PartitionRecord)
    try:
        PartitionRegistration.from_record(record)
    except ValueError as error:
        raise InvalidMetadata(f"a snapshot holds an invalid partition: {error}") from error
    return record.topic_id
