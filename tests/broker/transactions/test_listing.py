"""Filters of ListTransactions."""

import re

from broker.transactions.listing import TransactionFilter, unknown_states
from broker.transactions.state import Transaction, TransactionState

TRANSACTIONS = [
    ("a", Transaction(producer_id=1, producer_epoch=0, timeout_ms=1, last_update_ms=0)),
    (
        "b",
        Transaction(
            producer_id=2, producer_epoch=0, timeout_ms=1, last_update_ms=0, state=TransactionState.ONGOING, start_ms=50
        ),
    ),
]


def select(wanted: TransactionFilter) -> list[str]:
    return [each.transactional_id for each in wanted.select(TRANSACTIONS, 100)]


def test_filter_without_conditions_selects_everything() -> None:
    assert select(TransactionFilter()) == ["a", "b"]


def test_states_producers_durations_and_patterns_select() -> None:
    assert select(TransactionFilter(states=frozenset(["Ongoing"]))) == ["b"]
    assert select(TransactionFilter(producer_ids=frozenset([1]))) == ["a"]
    assert select(TransactionFilter(minimum_duration_ms=0)) == ["b"], "an id without a transaction has no duration"
    assert select(TransactionFilter(minimum_duration_ms=50)) == []
    assert select(TransactionFilter(pattern=re.compile("[b-z]"))) == ["b"]


def test_unknown_states_are_named() -> None:
    assert unknown_states(["Ongoing", "Dead", "Sleeping"]) == ["Sleeping"]
