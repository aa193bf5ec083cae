"""Decoding of kraft.version and voters records from control batches (KIP-853)."""

from typing import Final

from broker.quorum.settings import ControlRecord
from protocol.compiler import decode
from protocol.errors import DecodeError
from protocol.ids import Offset
from protocol.messages.common_records import KRaftVersionRecord, VotersRecord
from protocol.primitives import Buffer
from protocol.records.control import ControlType, control_type
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import iter_records

_CONTROL_VERSION: Final = 0


def read_control_records(
    batch: Buffer, position: int = 0, *, snapshot_offset: int | None = None
) -> list[ControlRecord]:
    """Return the changes of kraft.version and voters in the control batch at `position`.

    Other control records are skipped. Each change has the offset of its record, or `snapshot_offset` (the last
    offset in the snapshot) if given. Raise MalformedRecords.
    """
    found: list[ControlRecord] = []
    try:
        for record in iter_records(batch, position):
            offset = record.offset if snapshot_offset is None else snapshot_offset
            found += _changes(control_type(record.key), record.value or b"", offset)
    except (MalformedBatch, DecodeError) as error:
        raise MalformedRecords(f"a control batch does not parse: {error}") from error
    return found


def _changes(kind: ControlType | None, value: Buffer, offset: int) -> list[ControlRecord]:
    match kind:
        case ControlType.KRAFT_VERSION:
            version = decode(KRaftVersionRecord, value, _CONTROL_VERSION)[0].kraft_version
            return [ControlRecord(Offset(offset), version, None)]
        case ControlType.KRAFT_VOTERS:
            return [
                ControlRecord(
                    Offset(offset), None, _without_duplicates(decode(VotersRecord, value, _CONTROL_VERSION)[0])
                )
            ]
    return []


def _without_duplicates(voters: VotersRecord) -> VotersRecord:
    """Reject duplicate ids before the batch is on disk; afterwards no node could start from the log."""
    ids = [voter.voter_id for voter in voters.voters]
    if len(set(ids)) != len(ids):
        raise MalformedRecords(f"the voters record contains an id twice: {ids}")
    return voters
