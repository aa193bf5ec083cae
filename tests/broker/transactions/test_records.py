"""The records of `__transaction_state` (`broker.transactions.records`)."""

from dataclasses import replace

import pytest

from broker.transactions.records import (
    FLEXIBLE_VALUE,
    PLAIN_VALUE,
    TransactionRemoved,
    TransactionWritten,
    decode_record,
    transaction_removed,
    transaction_written,
)
from broker.transactions.state import Transaction, TransactionPartition, TransactionState
from protocol.errors import DecodeError

ONGOING = Transaction(
    producer_id=5,
    producer_epoch=3,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({TransactionPartition("t", 1), TransactionPartition("t", 0), TransactionPartition("u", 7)}),
    start_ms=10,
    last_update_ms=20,
)


@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize("version", [PLAIN_VALUE, FLEXIBLE_VALUE])
def test_written_transaction_is_read_back(state: TransactionState, version: int) -> None:
    transaction = replace(ONGOING, state=state)
    if state is TransactionState.EMPTY:
        transaction = replace(transaction, partitions=frozenset())
    record = transaction_written("orders", transaction, version)
    assert record.event == TransactionWritten("orders", transaction)
    assert decode_record(record.key, record.value) == record.event


def test_flexible_value_has_the_producer_ids_before_and_after() -> None:
    transaction = replace(ONGOING, version=2, previous_producer_id=4, next_producer_id=6)
    record = transaction_written("orders", transaction, FLEXIBLE_VALUE)
    assert decode_record(record.key, record.value) == TransactionWritten("orders", transaction)
    plain = transaction_written("orders", transaction, PLAIN_VALUE)
    assert decode_record(plain.key, plain.value) == TransactionWritten("orders", ONGOING)


def test_plain_value_has_kafkas_bytes() -> None:
    """Lengths, the order of the fields and null partitions, written out by hand from Kafka's schema."""
    empty = Transaction(producer_id=5, producer_epoch=3, timeout_ms=60_000, last_update_ms=20)
    record = transaction_written("ab", empty, PLAIN_VALUE)
    assert record.key == bytes.fromhex("000000026162")
    assert record.value == bytes.fromhex("0000000000000000000500030000ea6000ffffffff0000000000000014ffffffffffffffff")


def test_tombstone_removes_the_id() -> None:
    record = transaction_removed("orders")
    assert record.value is None
    assert decode_record(record.key, None) == TransactionRemoved("orders") == record.event


def test_last_epoch_is_not_in_the_log() -> None:
    record = transaction_written("orders", replace(ONGOING, last_epoch=2), FLEXIBLE_VALUE)
    assert decode_record(record.key, record.value) == TransactionWritten("orders", ONGOING)


def test_unknown_key_versions_are_ignored() -> None:
    assert decode_record(b"\x00\x01\x00\x00", b"") is None


UNKNOWN_STATE = bytes.fromhex("0000" + "00" * 14 + "06" + "ff" * 4 + "00" * 16)


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x02", b"\x00\x00\x00", UNKNOWN_STATE])
def test_malformed_values_are_refused(value: bytes) -> None:
    key = transaction_removed("orders").key
    with pytest.raises(DecodeError):
        decode_record(key, value)


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x00\x00\x05ab"])
def test_malformed_keys_are_refused(key: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_record(key, None)
