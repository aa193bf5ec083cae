"""The transactional ids of a partition, in an order that allows work on all of them in slices.

A table may have a million ids, and changes between two slices. A walk goes from the last position to the first, and a
removal moves the last id to the free position. So a walk misses no id that stays in the table: what moves before the
walk's position was behind it, and has been visited. Such an id can come up twice.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.transactions.state import Transaction

IDS_PER_SLICE: Final = 256
"""Transactional ids of a slice, whose removal takes about a millisecond."""


class TransactionSlice(NamedTuple):
    """Neighbours in the table. The walk goes on before `position`, and ends at 0."""

    transactions: list[tuple[str, Transaction]]
    position: int


class TransactionTable:
    """The state of each transactional id."""

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}
        self._ids: list[str] = []
        self._transactions: list[Transaction] = []

    def __len__(self) -> int:
        return len(self._ids)

    def get(self, transactional_id: str) -> Transaction | None:
        position = self._positions.get(transactional_id)
        return None if position is None else self._transactions[position]

    def put(self, transactional_id: str, transaction: Transaction) -> None:
        """Add a transactional id, or replace its state."""
        position = self._positions.setdefault(transactional_id, len(self._ids))
        if position == len(self._ids):
            self._ids.append(transactional_id)
            self._transactions.append(transaction)
        else:
            self._transactions[position] = transaction

    def remove(self, transactional_id: str) -> None:
        """Remove a transactional id, if the table has it."""
        position = self._positions.pop(transactional_id, None)
        if position is None:
            return
        last_id, last = self._ids.pop(), self._transactions.pop()
        if position < len(self._ids):
            self._positions[last_id] = position
            self._ids[position], self._transactions[position] = last_id, last

    def slice_before(self, position: int) -> TransactionSlice:
        """Return the next slice of a walk that has come to `position`; it begins at the length of the table."""
        end = min(position, len(self._ids))
        start = max(end - IDS_PER_SLICE, 0)
        return TransactionSlice(
            list(zip(self._ids[start:end], self._transactions[start:end], strict=True)),
            start,
        )

    def slices(self) -> Iterator[list[tuple[str, Transaction]]]:
        """Walk the table. It may change between two slices."""
        position = len(self._ids)
        while position:
            transactions, position = self.slice_before(position)
            yield transactions
