"""The records of `__transaction_state` in Kafka's formats, and their events.

A key is an int16 version and a message, a value likewise; no value is a tombstone. Value version 1 (feature
`transaction.version` 1) has the fields of KIP-890; with version 0 a failover forgets them.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from broker.coordination.log_fold import FoldRule
from broker.coordination.shard import CoordinatorRecord
from broker.transactions.state import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
    TransactionPartition,
    TransactionState,
)
from protocol.compiler import decode, encode_bytes
from protocol.errors import DecodeError
from protocol.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue

KEY_VERSION: Final = 0
PLAIN_VALUE: Final = 0
FLEXIBLE_VALUE: Final = 1
_VERSION_BYTES: Final = 2
KEYS_MAX: Final = 10_000
"""Limit of the remembered keys: each transaction writes the key of its id three times."""


TRANSACTION_FOLD: Final = FoldRule(lambda key: key)


class TransactionWritten(NamedTuple):
    transactional_id: str
    transaction: Transaction


class TransactionRemoved(NamedTuple):
    transactional_id: str


TransactionEvent = TransactionWritten | TransactionRemoved
TransactionRecord = CoordinatorRecord[TransactionEvent]


def transaction_written(transactional_id: str, transaction: Transaction, value_version: int) -> TransactionRecord:
    """Return the record of a transactional id's state."""
    topics: dict[str, list[int]] = {}
    partitions = transaction.partitions
    for topic, index in sorted(partitions) if len(partitions) > 1 else partitions:
        topics.setdefault(topic, []).append(index)
    is_empty = transaction.state is TransactionState.EMPTY
    message = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if is_empty else [PartitionsSchema(*each) for each in topics.items()],
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if value_version >= FLEXIBLE_VALUE:
        message.previous_producer_id = transaction.previous_producer_id
        message.next_producer_id = transaction.next_producer_id
        message.next_producer_epoch = NO_PRODUCER_EPOCH if transaction.next_producer_id == NO_PRODUCER_ID else 0
        message.client_transaction_version = transaction.version
    value = value_version.to_bytes(_VERSION_BYTES, "big") + encode_bytes(message, value_version)
    return CoordinatorRecord(_key(transactional_id), value, TransactionWritten(transactional_id, transaction))


def transaction_removed(transactional_id: str) -> TransactionRecord:
    """Return the tombstone of a transactional id."""
    return CoordinatorRecord(_key(transactional_id), None, TransactionRemoved(transactional_id))


def decode_record(key: bytes, value: bytes | None) -> TransactionEvent | None:
    """Return the event of a record; None for a key version that this broker does not know. Raises DecodeError."""
    if _version(key) != KEY_VERSION:
        return None
    transactional_id = decode(TransactionLogKey, key, KEY_VERSION, _VERSION_BYTES)[0].transactional_id
    if value is None:
        return TransactionRemoved(transactional_id)
    version = _version(value)
    if version not in (PLAIN_VALUE, FLEXIBLE_VALUE):
        raise DecodeError(f"unknown version {version} of a value in __transaction_state")
    message, _ = decode(TransactionLogValue, value, version, _VERSION_BYTES)
    try:
        state = TransactionState(message.transaction_status)
    except ValueError:
        raise DecodeError(f"unknown transaction state {message.transaction_status}") from None
    transaction = Transaction(
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        timeout_ms=message.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TransactionPartition(each.topic, index)
            for each in message.transaction_partitions or ()
            for index in each.partition_ids
        ),
        start_ms=message.transaction_start_timestamp_ms,
        last_update_ms=message.transaction_last_update_timestamp_ms,
        version=message.client_transaction_version,
        previous_producer_id=message.previous_producer_id,
        next_producer_id=message.next_producer_id,
    )
    return TransactionWritten(transactional_id, transaction)


@lru_cache(KEYS_MAX)
def _key(transactional_id: str) -> bytes:
    return KEY_VERSION.to_bytes(_VERSION_BYTES, "big") + encode_bytes(TransactionLogKey(transactional_id), KEY_VERSION)


def _version(data: bytes) -> int:
    if len(data) < _VERSION_BYTES:
        raise DecodeError("a record of __transaction_state is too short for a version")
    return int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
