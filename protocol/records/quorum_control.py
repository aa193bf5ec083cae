"""Control records of the metadata log about its quorum: kraft.version and the voters (KIP-853).

Logs and snapshots contain them with the same meaning.
"""

from typing import Final, NamedTuple

from protocol.compiler import decode, encode_bytes
from protocol.errors import DecodeError
from protocol.messages.common_records import KRaftVersionRecord, VotersRecord
from protocol.primitives import Buffer
from protocol.records.control import ControlType, control_type
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import iter_records

_CONTROL_VERSION: Final = 0


class ControlState(NamedTuple):
    """The kraft.version and voters that the control records so far have set."""

    kraft_version: int
    voters: VotersRecord | None


def control_records(control: ControlState) -> list[tuple[ControlType, bytes]]:
    """Return the control records for a kraft.version and, if known, the voters."""
    version = KRaftVersionRecord(kraft_version=control.kraft_version)
    records = [(ControlType.KRAFT_VERSION, encode_bytes(version, _CONTROL_VERSION))]
    if control.voters is not None:
        records.append((ControlType.KRAFT_VOTERS, encode_bytes(control.voters, _CONTROL_VERSION)))
    return records


def read_control_state(batch: Buffer, position: int, before: ControlState | None) -> ControlState | None:
    """Return the state after a control batch; `before` if the batch has other records. Raises MalformedRecords."""
    state = before
    try:
        for record in iter_records(batch, position):
            state = _after(control_type(record.key), record.value or b"", state)
    except (MalformedBatch, DecodeError) as error:
        raise MalformedRecords(f"a control batch does not parse: {error}") from error
    return state


def _after(kind: ControlType | None, value: Buffer, state: ControlState | None) -> ControlState | None:
    match kind:
        case ControlType.KRAFT_VERSION:
            version = decode(KRaftVersionRecord, value, _CONTROL_VERSION)[0].kraft_version
            return ControlState(version, None if state is None else state.voters)
        case ControlType.KRAFT_VOTERS:
            voters = decode(VotersRecord, value, _CONTROL_VERSION)[0]
            return ControlState(0 if state is None else state.kraft_version, voters)
    return state
