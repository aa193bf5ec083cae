"""Control records that a leader writes, and validation of the batches that a follower fetches.

A batch that fails validation is never appended (KAFKA-18723); the valid batches before it are.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from broker.quorum.control_records import read_control_records
from broker.quorum.membership.voters import VoterSet
from broker.quorum.settings import ControlRecord
from protocol.compiler import encode_bytes
from protocol.ids import BrokerId, LeaderEpoch
from protocol.messages.common_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
)
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, crc_is_valid, iter_headers
from protocol.records.compression import Codec
from protocol.records.control import ControlType
from protocol.records.errors import MalformedBatch, MalformedRecords

_VERSION = 0
"""The version of every control record in the log; also the record's first field."""

TypedRecord = tuple[ControlType, bytes]


def leader_change(leader_id: BrokerId, voters: Iterable[int], granted: Iterable[int]) -> TypedRecord:
    """Return the first record of an epoch."""
    message = LeaderChangeMessage(
        leader_id=leader_id,
        voters=[LeaderChangeMessageVoter(voter_id=voter) for voter in sorted(voters)],
        granting_voters=[LeaderChangeMessageVoter(voter_id=voter) for voter in sorted(granted)],
    )
    return ControlType.LEADER_CHANGE, encode_bytes(message, _VERSION)


def kraft_version(version: int) -> TypedRecord:
    return ControlType.KRAFT_VERSION, encode_bytes(KRaftVersionRecord(kraft_version=version), _VERSION)


def voters(voter_set: VoterSet) -> TypedRecord:
    return ControlType.KRAFT_VOTERS, encode_bytes(voter_set.to_record(), _VERSION)


class CheckedBatch(NamedTuple):
    """A valid batch at `position` of a response, with its changes of voters and kraft.version."""

    position: int
    header: BatchHeader
    control: Sequence[ControlRecord]


def checked_batches(
    records: Buffer, offset: int, last_epoch: LeaderEpoch, fetch_epoch: LeaderEpoch
) -> Iterator[CheckedBatch]:
    """Yield the batches that continue a log ending at `offset` with a record of `last_epoch`, up to the first invalid.

    Offsets must be contiguous; epochs must not decrease and must not exceed the epoch of the fetch.
    """
    try:
        for position, header in iter_headers(records):
            is_next = header.base_offset == offset and last_epoch <= header.leader_epoch <= fetch_epoch
            if not is_next or not _is_valid(records, position, header):
                return
            yield CheckedBatch(position, header, read_control_records(records, position) if header.is_control else ())
            offset, last_epoch = header.next_offset, header.leader_epoch
    except (MalformedBatch, MalformedRecords):
        return


def _is_valid(records: Buffer, position: int, header: BatchHeader) -> bool:
    return (
        header.last_offset_delta >= 0
        and header.record_count == header.last_offset_delta + 1
        and header.codec == Codec.NONE
        and crc_is_valid(records, position, header.size)
    )


def control_of(batch: Buffer) -> Sequence[ControlRecord]:
    """Return the changes of voters and kraft.version in a control batch."""
    return read_control_records(batch)
