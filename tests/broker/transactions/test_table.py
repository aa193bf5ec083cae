"""The table of transactional ids: walks in slices while ids come and go."""

from random import Random

import pytest

from broker.transactions.state import Transaction
from broker.transactions.table import IDS_PER_SLICE, TransactionTable


def transaction(producer_id: int = 1) -> Transaction:
    return Transaction(producer_id=producer_id, producer_epoch=0, timeout_ms=1, last_update_ms=0)


def table_of(count: int) -> TransactionTable:
    table = TransactionTable()
    for index in range(count):
        table.put(str(index), transaction(index))
    return table


def test_table_returns_replaces_and_removes_states() -> None:
    table = table_of(3)
    table.put("1", transaction(9))
    table.remove("0")
    table.remove("never")
    assert len(table) == 2
    states = {each: table.get(each) for each in "012"}
    assert states == {"0": None, "1": transaction(9), "2": transaction(2)}


def test_walk_of_a_large_table_takes_limited_slices() -> None:
    sizes = [len(each) for each in table_of(1_000_000).slices()]
    assert max(sizes) == IDS_PER_SLICE
    assert (sum(sizes), len(sizes)) == (1_000_000, -(-1_000_000 // IDS_PER_SLICE))


@pytest.mark.parametrize("seed", range(20))
def test_walk_misses_no_id_that_stays_while_others_come_and_go(seed: int) -> None:
    random, table = Random(seed), table_of(20 * IDS_PER_SLICE)
    expected = {str(index) for index in range(20 * IDS_PER_SLICE)}
    seen: set[str] = set()
    for step, transactions in enumerate(table.slices()):
        seen.update(transactional_id for transactional_id, _ in transactions)
        for each in random.sample(sorted(expected), 100):
            table.remove(each)
            expected.discard(each)
        for index in range(random.randrange(150)):
            table.put(f"new {step} {index}", transaction())
    assert expected <= seen
