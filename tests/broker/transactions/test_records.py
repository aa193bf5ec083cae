"""The records of `__transaction_state` (`broker.transactions.records`)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.transactions.records import (
    FLEXIBLE_VALUE,
    PLAIN_VALUE,
    REMEMBERED_PARTITIONS,
    TransactionRemoved,
    TransactionWritten,
    decode_record,
    transaction_removed,
    transaction_written,
)
from broker.transactions.state import Transaction, TransactionPartition, TransactionState
from protocol.compiler import encode_bytes
from protocol.errors import DecodeError
from protocol.messages.transaction_records import PartitionsSchema, TransactionLogValue

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


_ids = st.integers(-1, 2**63 - 1)
_indexes = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=REMEMBERED_PARTITIONS, unique=True)


@given(
    states=st.sampled_from(TransactionState),
    topics=st.dictionaries(st.text(min_size=1, max_size=130), _indexes, max_size=3),
    ids=st.tuples(_ids, _ids, _ids),
    times=st.tuples(st.integers(-1, 2**62), st.integers(-1, 2**62)),
    version=st.integers(0, 2),
)
def test_flexible_value_is_that_of_the_schema(
    states: TransactionState,
    topics: dict[str, list[int]],
    ids: tuple[int, int, int],
    times: tuple[int, int],
    version: int,
) -> None:
    partitions = frozenset(TransactionPartition(topic, each) for topic, indexes in topics.items() for each in indexes)
    transaction = replace(
        ONGOING,
        state=states,
        producer_id=ids[0],
        partitions=partitions,
        start_ms=times[0],
        last_update_ms=times[1],
        version=version,
        previous_producer_id=ids[1],
        next_producer_id=ids[2],
    )
    rows = [PartitionsSchema(topic, sorted(topics[topic])) for topic in sorted(topics)]
    message = TransactionLogValue(
        producer_id=ids[0],
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=states,
        transaction_partitions=None if states is TransactionState.EMPTY else rows,
        transaction_last_update_timestamp_ms=times[1],
        transaction_start_timestamp_ms=times[0],
        previous_producer_id=ids[1],
        next_producer_id=ids[2],
        next_producer_epoch=-1 if ids[2] == -1 else 0,
        client_transaction_version=version,
    )
    written = transaction_written("orders", transaction, FLEXIBLE_VALUE)
    assert written.value == b"\x00\x01" + encode_bytes(message, FLEXIBLE_VALUE)


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
