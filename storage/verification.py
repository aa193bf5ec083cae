"""Verification by the coordinator before a transaction's first batch is appended to a partition (KIP-890).

A client that lost its transaction could otherwise leave an open transaction that nothing ends. The first batch of a
transaction creates an entry with a guard. The caller sends the verification to the coordinator and appends with the
guard. An append that ends or begins a transaction of the same producer meanwhile removes the entry, so that a late
response does not open a transaction.
"""

from itertools import count
from typing import NewType

from protocol.lazy_dataclass import lazy_dataclass
from protocol.records.batch import NO_SEQUENCE, BatchHeader
from storage.errors import InvalidRecords, Rejection

Guard = NewType("Guard", int)


@lazy_dataclass(slots=True)
class _Entry:
    guard: Guard
    lowest_sequence: int
    epoch: int
    started_ms: int


class Verifications:
    """The transactions of one log whose first batch waits for verification by the coordinator."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._guards = count(1)

    def start(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> Guard:
        """Return the guard that the append of a batch with this base sequence must present.

        Raises InvalidRecords INVALID_PRODUCER_EPOCH below the epoch of another batch that waits.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = _Entry(Guard(next(self._guards)), sequence, epoch, now_ms)
            return entry.guard
        if epoch < entry.epoch:
            raise InvalidRecords(
                Rejection.INVALID_PRODUCER_EPOCH, f"epoch {epoch} of producer {producer_id} is below {entry.epoch}"
            )
        entry.started_ms = now_ms
        if epoch > entry.epoch:
            entry.epoch, entry.lowest_sequence = epoch, sequence
        elif sequence < entry.lowest_sequence:
            entry.lowest_sequence = sequence
        return entry.guard

    def accepts(self, producer_id: int, guard: Guard) -> bool:
        """Whether the guard is that of the producer's next transaction."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.guard == guard

    def check(self, header: BatchHeader, guard: Guard | None) -> None:
        """Raise InvalidRecords unless the first batch of a transaction may be appended."""
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.guard != guard:
            raise InvalidRecords(
                Rejection.INVALID_TXN_STATE,
                f"producer {header.producer_id} has no verified transaction on this partition",
            )
        if header.base_sequence > entry.lowest_sequence != NO_SEQUENCE:
            raise InvalidRecords(
                Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence} first, "
                f"after {entry.lowest_sequence} was seen",
            )

    def end(self, producer_id: int) -> None:
        """Drop the entry after an append of a transactional batch or marker, or after the producer expired."""
        self._entries.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Drop entries whose batch was never appended."""
        for producer_id in [id for id, entry in self._entries.items() if now_ms - entry.started_ms >= expiration_ms]:
            del self._entries[producer_id]
