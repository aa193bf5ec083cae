"""Metadata transactions (KIP-868) in a run of rows: which rows are folded, wait, or are dropped.

The log holds no other metadata between the begin and the end of a transaction. A transaction is therefore a range of
offsets, and the state stays before it until it ends. Waiting rows come again: the next run begins at `stable_end`. No
snapshot may be taken while a transaction is open, because its begin may lie in the middle of a batch.
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
    """The plan for the rows below an end.

    `stable_end`: rows below it are folded now, except those in `aborted`, ranges [first, end) in order. `open_since` is
    the offset of the transaction that is open at the end, and then equals `stable_end`; -1 without an open transaction.
    """

    stable_end: int
    aborted: tuple[tuple[int, int], ...] = ()
    open_since: int = -1

    @property
    def is_open(self) -> bool:
        return self.open_since >= 0


def plan(markers: Sequence[TransactionMarker], *, start: int, end: int) -> TransactionPlan:
    """Plan the rows from `start` to `end` with these markers, in any order.

    No transaction is open at `start`, the end of a state or a snapshot; markers below it are ignored. Raises
    InvalidMetadata for a transaction inside another, or an end without a begin.
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
