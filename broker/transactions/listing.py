"""The selection of transactional ids (ListTransactions; KIP-664, KIP-994, KIP-1152)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from broker.transactions.state import NOT_STARTED_MS, Transaction, TransactionState

STATE_NAMES: Final = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
}
"""Names of states in responses."""
_NEVER_STORED: Final = frozenset(("Dead", "PrepareEpochFence"))
ANY_DURATION: Final = -1


class Pattern(Protocol):
    """A compiled regular expression."""

    def fullmatch(self, text: str) -> object: ...


class ListedTransaction(NamedTuple):
    """A transactional id in a list."""

    transactional_id: str
    transaction: Transaction


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Conditions of a list; empty ones allow everything. `minimum_duration_ms` is the least age of a transaction."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    minimum_duration_ms: int = ANY_DURATION
    pattern: Pattern | None = None

    def select(self, transactions: Iterable[tuple[str, Transaction]], now_ms: int) -> Iterator[ListedTransaction]:
        """Yield the matching transactional ids."""
        for transactional_id, transaction in transactions:
            if self._matches(transactional_id, transaction, now_ms):
                yield ListedTransaction(transactional_id, transaction)

    def _matches(self, transactional_id: str, transaction: Transaction, now_ms: int) -> bool:
        if self.states and STATE_NAMES[transaction.state] not in self.states:
            return False
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if self.minimum_duration_ms >= 0 and not self._lasts(transaction, now_ms):
            return False
        return self.pattern is None or self.pattern.fullmatch(transactional_id) is not None

    def _lasts(self, transaction: Transaction, now_ms: int) -> bool:
        start_ms = transaction.start_ms
        return start_ms != NOT_STARTED_MS and now_ms - start_ms > self.minimum_duration_ms


def unknown_states(names: Iterable[str]) -> list[str]:
    """Return the names that no state has."""
    known = _NEVER_STORED.union(STATE_NAMES.values())
    return [name for name in names if name not in known]
