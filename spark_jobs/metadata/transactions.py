"""Metadata transactions (KIP-868) over a run of rows: what is folded now, what is held back, what is dropped.

Between the beginning of a transaction and its end the log holds no other metadata, so a transaction is a range of
offsets, and the state simply stands before it until it ends. Rows that are held back come again: the next run begins at
`stable_end`. No snapshot may be cut while one is open, for its beginning may lie in the middle of a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.metadata.image.records import InvalidMetadata
from protocol.messages.metadata_records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord

BEGIN: Final = BeginTransactionRecord.API_KEY
END: Final = EndTransactionRecord.API_KEY
ABORT: Final = AbortTransactionRecord.API_KEY
MARKERS: Final = (BEGIN, END, ABORT)


class TransactionMarker(NamedTuple):
    """A record that begins, ends or aborts a transaction: its offset and record key."""

    offset: int
    key: int


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """What to do with the rows below an end.

    `stable_end`: rows below it are folded now, but for those in `aborted`, ranges [first, end) in order. `open_since`
    is the offset of the transaction that is open at the end, and then equal to `stable_end`; -1 if none is.
    """

    stable_end: int
    aborted: tuple[tuple[int, int], ...] = ()
    open_since: int = -1

    @property
    def is_open(self) -> bool:
        return self.open_since >= 0


def plan(markers: Sequence[TransactionMarker], *, start: int, end: int) -> TransactionPlan:
    """The plan for rows from `start` to `end` with these markers, in any order; none is open at `start`, where a state
    ends or for which a snapshot stands, and markers below it mean nothing any more.

    Raises InvalidMetadata for a transaction inside another, or an end without a beginning.
    """
    begun = -1
    aborted = []
    for offset, key in sorted(each for each in markers if start <= each.offset < end):
        if (key == BEGIN) == (begun >= 0):
            wrong = "begins inside another" if key == BEGIN else "ends that never began"
            raise InvalidMetadata(f"a metadata transaction {wrong}, at offset {offset}")
        if key == ABORT:
            aborted.append((begun, offset))
        begun = offset if key == BEGIN else -1
    return TransactionPlan(end if begun < 0 else begun, tuple(aborted), begun)
