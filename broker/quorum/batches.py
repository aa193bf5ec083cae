"""Batches of the metadata log: control batches that a leader writes, and the checks of what a follower is sent.

A batch that fails a check is never appended, whoever sent it (KAFKA-18723); the good ones before it are.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from broker.quorum.control_records import read_control_records
from broker.quorum.membership.voters import VoterSet
from broker.quorum.settings import ControlRecord
from protocol.compiler import encode_bytes
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
"""Of every control message in the log, as its own first field says."""

TypedRecord = tuple[ControlType, bytes]


def leader_change(leader_id: int, voters: Iterable[int], granted: Iterable[int]) -> TypedRecord:
    """The record that opens an epoch."""
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
    """A batch at `position` of a response that may be appended, with the changes of voters and kraft.version in it."""

    position: int
    header: BatchHeader
    control: Sequence[ControlRecord]


def checked_batches(records: Buffer, offset: int, last_epoch: int, fetch_epoch: int) -> Iterator[CheckedBatch]:
    """The batches that continue a log which ends at `offset` with a record of `last_epoch`, up to the first bad one.

    Their offsets are contiguous, their epochs do not fall and do not exceed that of the fetch.
    """
    try:
        for position, header in iter_headers(records):
            is_next = header.base_offset == offset and last_epoch <= header.leader_epoch <= fetch_epoch
            if not is_next or not _is_sound(records, position, header):
                return
            yield CheckedBatch(position, header, read_control_records(records, position) if header.is_control else ())
            offset, last_epoch = header.next_offset, header.leader_epoch
    except (MalformedBatch, MalformedRecords):
        return


def _is_sound(records: Buffer, position: int, header: BatchHeader) -> bool:
    return (
        header.last_offset_delta >= 0
        and header.record_count == header.last_offset_delta + 1
        and header.codec == Codec.NONE
        and crc_is_valid(records, position, header.size)
    )


def control_of(batch: Buffer) -> Sequence[ControlRecord]:
    """The changes of voters and kraft.version in a control batch of one's own."""
    return read_control_records(batch)
