"""Filters of ListTransactions."""

import re
from collections.abc import Iterator

from broker.metadata.image.slices import finish
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
    return finish(wanted.select([TRANSACTIONS], 100, lambda transactional_id, _: transactional_id))


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


def test_each_slice_is_a_step_and_an_id_that_comes_up_twice_is_listed_once() -> None:
    seen: list[int] = []

    def slices() -> Iterator[list[tuple[str, Transaction]]]:
        for index in range(3):
            seen.append(index)
            yield TRANSACTIONS

    steps = TransactionFilter().select(slices(), 100, lambda transactional_id, _: transactional_id)
    for step in range(3):
        next(steps)
        assert seen == list(range(step + 1))
    assert finish(steps) == ["a", "b"]
