"""Sample segments: metadata and files."""

from typing import NamedTuple

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import ONE_UUID, Uuid, uuid_from_text
from storage.files import FileSystem, join, write_file
from storage.tiered.remote_storage import IndexKind, SegmentFiles
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, SegmentEpoch, TopicIdPartition

TOPIC_ID = uuid_from_text("lZ6vvmajTWKDBUTV6SQAtQ")
SEGMENT_ID = uuid_from_text("adh9f8BMS4anaUnD8KWfWg")
PARTITION = TopicIdPartition(TOPIC_ID, "topic1", 42)
DIRECTORY = "data/topic1-42"
LEADER_EPOCHS = b"0\n2\n0 0\n3 1100\n"


def segment(
    size_bytes: int,
    *,
    number: int | None = None,
    partition: TopicIdPartition = PARTITION,
    start_offset: int = 1000,
    custom_metadata: bytes | None = None,
) -> RemoteSegment:
    """Return a segment of 200 offsets; `number` determines its id."""
    return RemoteSegment(
        id=RemoteSegmentId(partition, SEGMENT_ID if number is None else Uuid(number.to_bytes(16, "big"))),
        start_offset=start_offset,
        end_offset=start_offset + 200,
        max_timestamp_ms=1_700_000_000_000,
        broker_id=BrokerId(2),
        event_timestamp_ms=1_700_000_100_000,
        size_bytes=size_bytes,
        leader_epochs=(SegmentEpoch(LeaderEpoch(0), start_offset), SegmentEpoch(LeaderEpoch(3), start_offset + 100)),
        custom_metadata=custom_metadata,
    )


class Contents(NamedTuple):
    """Bytes of a segment's files; None for a missing file."""

    log: bytes
    offset_index: bytes = b"offset index" * 4
    time_index: bytes = b"time index" * 6
    transaction_index: bytes | None = b"transaction index"
    producer_snapshot: bytes | None = b"producer snapshot"
    leader_epochs: bytes = LEADER_EPOCHS

    def of(self, kind: IndexKind) -> bytes | None:
        return {
            IndexKind.OFFSET: self.offset_index,
            IndexKind.TIME: self.time_index,
            IndexKind.TRANSACTION: self.transaction_index,
            IndexKind.PRODUCER_SNAPSHOT: self.producer_snapshot,
            IndexKind.LEADER_EPOCH: self.leader_epochs,
        }[kind]


def write_files(fs: FileSystem, contents: Contents, directory: str = DIRECTORY) -> SegmentFiles:
    """Write `contents` to files as a log does."""
    fs.make_directory(directory)

    def put(name: str, content: bytes) -> str:
        path = join(directory, name)
        write_file(fs, path, content, sync=False)
        return path

    def put_if_any(name: str, content: bytes | None) -> str | None:
        return None if content is None else put(name, content)

    return SegmentFiles(
        fs=fs,
        log=put("00000000000000001000.log", contents.log),
        offset_index=put("00000000000000001000.index", contents.offset_index),
        time_index=put("00000000000000001000.timeindex", contents.time_index),
        transaction_index=put_if_any("00000000000000001000.txnindex", contents.transaction_index),
        producer_snapshot=put_if_any("00000000000000001201.snapshot", contents.producer_snapshot),
        leader_epochs=contents.leader_epochs,
    )


OTHER_PARTITION = TopicIdPartition(ONE_UUID, "topic1", 0)
