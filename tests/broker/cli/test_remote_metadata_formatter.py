"""Records of `__remote_log_metadata`, compared with the output of Kafka 4.2's formatter."""

from dataclasses import replace

import pytest

from broker.cli.console.remote_metadata import RemoteMetadataWriter
from broker.cli.shared.failure import CommandFailed
from protocol.ids import LeaderEpoch
from protocol.records.batch import parse_header
from protocol.records.builder import build_value_batch
from protocol.records.reader import iter_records
from storage.directories.checkpoints import TopicPartition
from storage.tiered.catalog.metadata_records import MetadataEvent, encode_event
from storage.tiered.segment_metadata import SegmentState
from tests.storage.tiered.catalog.test_metadata_records import DELETE, SEGMENT, UPDATE

ID = (
    "remoteLogSegmentId=RemoteLogSegmentId{topicIdPartition=lZ6vvmajTWKDBUTV6SQAtQ:topic1-42, "
    "id=adh9f8BMS4anaUnD8KWfWg}"
)
SEGMENT_LINE = (
    f"RemoteLogSegmentMetadata{{{ID}, startOffset=1000, endOffset=1999, brokerId=2, maxTimestampMs=1700000000000, "
    "eventTimestampMs=1700000000001, segmentLeaderEpochs={3=1000, 7=1500}, segmentSizeInBytes=1073741824, "
)


def line(value: bytes) -> str:
    batch = build_value_batch([value], 1, base_offset=17, leader_epoch=LeaderEpoch(0))
    (record,) = iter_records(batch)
    return RemoteMetadataWriter().line(TopicPartition("any", 3), parse_header(batch), record).decode()


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            replace(SEGMENT, custom_metadata=bytes(8)),
            SEGMENT_LINE + "customMetadata=Optional[CustomMetadata{8 bytes}], state=COPY_SEGMENT_STARTED, "
            "txnIdxEmpty=true}",
        ),
        (
            replace(SEGMENT, custom_metadata=None, txn_index_empty=False),
            SEGMENT_LINE + "customMetadata=Optional.empty, state=COPY_SEGMENT_STARTED, txnIdxEmpty=false}",
        ),
        (
            UPDATE._replace(custom_metadata=None, state=SegmentState.DELETE_FINISHED),
            f"RemoteLogSegmentMetadataUpdate{{{ID}, customMetadata=Optional.empty, state=DELETE_SEGMENT_FINISHED, "
            "eventTimestampMs=1700000000002, brokerId=3}",
        ),
        (
            DELETE,
            "RemotePartitionDeleteMetadata{topicPartition=lZ6vvmajTWKDBUTV6SQAtQ:topic1-42, "
            "state=DELETE_PARTITION_MARKED, eventTimestampMs=1700000000003, brokerId=4}",
        ),
    ],
)
def test_record_is_printed_as_by_kafka(event: MetadataEvent, expected: str) -> None:
    assert line(encode_event(event)) == f"partition: 3, offset: 17, value: {expected}\n"


def test_undecodable_record_cannot_be_printed() -> None:
    with pytest.raises(CommandFailed, match="offset 17 of any-3: record type 9 is not known"):
        line(b"\x01\x09\x00")
