"""Snapshot files, compared with two that Apache Kafka's storage tool (4.2.0) wrote."""

import pytest

from broker.metadata.image.features import bootstrap_records, feature_record
from broker.metadata.snapshot.codec import (
    RECORDS_PER_BATCH,
    InvalidSnapshot,
    bootstrap_checkpoint,
    read_snapshot,
    snapshot_batches,
    voters_checkpoint,
)
from protocol.ids import LeaderEpoch
from protocol.messages.common_records import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter
from protocol.messages.metadata_records import FeatureLevelRecord
from protocol.primitives import uuid_from_text
from protocol.records.batch import iter_headers, write_crc
from protocol.records.quorum_control import ControlState
from tests.broker.metadata.images import image_with

BOOTSTRAP_OF_KAFKA = bytes.fromhex(
    "0000000000000000000000470000000002acc09c23002000000000000001a1fd1b1cb5000001a1fd1b1cb5ffffffffffffffffffffffff"
    "ffff000000012a0000000800000003160000000000000000000000000000000000000001000000f10000000002a4044545000000000005"
    "000001a1fd1b1cca000001a1fd1b1ccaffffffffffffffffffffffffffff000000063a000000012e010c00116d657461646174612e7665"
    "7273696f6e001d00005a000002014e010c0021656c696769626c652e6c65616465722e7265706c696361732e76657273696f6e00010000"
    "340000040128010c000e67726f75702e76657273696f6e00010000340000060128010c000e73686172652e76657273696f6e0001000038"
    "000008012c010c001073747265616d732e76657273696f6e000100004000000a0134010c00147472616e73616374696f6e2e7665727369"
    "6f6e0002000000000000000000070000003f00000000022f1b3011002000000000000001a1fd1b1ccc000001a1fd1b1cccffffffffffff"
    "ffffffffffffffff000000011a00000008000000040600000000"
)
VOTERS_OF_KAFKA = bytes.fromhex(
    "00000000000000000000009a0000000002214b1664002000000002000001a1fd1b1cda000001a1fd1b1cdaffffffffffffffffffffffff"
    "ffff000000032a0000000800000003160000000001a1fd1b1cd300001e00000208000000050a000000010000820100000408000000066e"
    "000002000000018ace763f55254167a6d082edfbefe1d5020b434f4e54524f4c4c45520a3132372e302e302e3172090000000001000000"
    "0000000000000000030000003f0000000002008079df002000000000000001a1fd1b1cdf000001a1fd1b1cdfffffffffffffffffffffff"
    "ffffff000000011a00000008000000040600000000"
)
KAFKAS_LEVELS = {
    "metadata.version": 29,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}


def voters() -> VotersRecord:
    return VotersRecord(
        voters=[
            VotersRecordVoter(
                1,
                uuid_from_text("is52P1UlQWem0ILt--_h1Q"),
                [Endpoint("CONTROLLER", "127.0.0.1", 29193)],
                KRaftVersionFeature(0, 1),
            )
        ]
    )


def test_kafka_snapshot_is_read() -> None:
    snapshot = read_snapshot(BOOTSTRAP_OF_KAFKA)
    assert snapshot.records == [FeatureLevelRecord(name, level) for name, level in KAFKAS_LEVELS.items()]
    assert (snapshot.last_timestamp_ms, snapshot.epoch, snapshot.control) == (0, 0, None)
    assert read_snapshot(VOTERS_OF_KAFKA).control == ControlState(1, voters())


def test_written_batches_equal_kafkas() -> None:
    """All bytes equal Kafka's except the timestamps of the three batches."""
    records = [feature_record(name, level) for name, level in KAFKAS_LEVELS.items()]
    ours, theirs = bytearray(bootstrap_checkpoint(records, 7)), bytearray(BOOTSTRAP_OF_KAFKA)
    for data in (ours, theirs):
        for position, header in list(iter_headers(data)):
            data[position + 27 : position + 43] = bytes(16)
            write_crc(data, position, header.size)
    assert ours == theirs


def test_voters_survive_the_round_trip() -> None:
    control = ControlState(1, voters())
    snapshot = read_snapshot(voters_checkpoint(control, 1_000))
    assert (snapshot.control, snapshot.last_timestamp_ms, snapshot.records) == (control, 1_000, [])


def test_static_quorum_has_no_voters_record() -> None:
    data = b"".join(
        snapshot_batches(
            (), epoch=LeaderEpoch(3), last_timestamp_ms=1, batch_timestamp_ms=1, control=ControlState(0, None)
        )
    )
    assert read_snapshot(data).control is None
    assert read_snapshot(data).epoch == 3


def test_large_image_round_trips_over_several_batches() -> None:
    records = list(image_with(topics={"t": 2 * RECORDS_PER_BATCH}).write())
    data = b"".join(snapshot_batches(records, epoch=LeaderEpoch(9), last_timestamp_ms=5, batch_timestamp_ms=5))
    assert read_snapshot(data).records == [record.message for record in records]
    headers = [header for _, header in iter_headers(data)]
    assert len(headers) == 2 + 3
    assert {header.leader_epoch for header in headers} == {9}
    assert [header.base_offset for header in headers][1:] == [header.next_offset for header in headers][:-1]


def test_equal_input_gives_equal_bytes() -> None:
    assert bootstrap_checkpoint(bootstrap_records(), 5) == bootstrap_checkpoint(bootstrap_records(), 5)


@pytest.mark.parametrize("size", [0, 10, 82, 83, 200, len(BOOTSTRAP_OF_KAFKA) - 75, len(BOOTSTRAP_OF_KAFKA) - 1])
def test_truncated_file_is_refused(size: int) -> None:
    with pytest.raises(InvalidSnapshot):
        read_snapshot(BOOTSTRAP_OF_KAFKA[:size])


@pytest.mark.parametrize("position", [30, 100, 150, len(BOOTSTRAP_OF_KAFKA) - 3])
def test_flipped_bit_is_detected(position: int) -> None:
    damaged = bytearray(BOOTSTRAP_OF_KAFKA)
    damaged[position] ^= 1
    with pytest.raises(InvalidSnapshot):
        read_snapshot(damaged)


def test_misplaced_batches_are_detected() -> None:
    first, *rest = snapshot_batches(
        bootstrap_records(), epoch=LeaderEpoch(0), last_timestamp_ms=0, batch_timestamp_ms=0
    )
    with pytest.raises(InvalidSnapshot):
        read_snapshot(b"".join([*rest, first]))
    with pytest.raises(InvalidSnapshot):
        read_snapshot(b"".join(rest))
