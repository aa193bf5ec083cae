"""The selection of transactional ids (ListTransactions; KIP-664, KIP-994, KIP-1152)."""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

from broker.transactions.state import NOT_STARTED_MS, Transaction, TransactionState
from protocol.lazy_dataclass import lazy_dataclass

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

V = TypeVar("V")

Slice: TypeAlias = Sequence[tuple[str, Transaction]]
"""Transactional ids whose visit takes about a millisecond."""


class Pattern(Protocol):
    """A compiled regular expression."""

    def fullmatch(self, text: str) -> object: ...


@lazy_dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Conditions of a list; empty ones allow everything. `minimum_duration_ms` is the least age of a transaction."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    minimum_duration_ms: int = ANY_DURATION
    pattern: Pattern | None = None

    def select(
        self, slices: Iterable[Slice], now_ms: int, view: Callable[[str, Transaction], V]
    ) -> Generator[None, None, list[V]]:
        """Return the views of the matching transactional ids, each once, and yield after each slice."""
        found: dict[str, V] = {}
        for transactions in slices:
            for transactional_id, transaction in transactions:
                if self._matches(transactional_id, transaction, now_ms):
                    found[transactional_id] = view(transactional_id, transaction)
            yield
        return list(found.values())

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
