"""The records of `__transaction_state` in Kafka's formats, and their events.

A key is an int16 version and a message, a value likewise; no value is a tombstone. Value version 1 (feature
`transaction.version` 1) has the fields of KIP-890; with version 0 a failover forgets them.
"""

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from broker.coordination.log_fold import FoldRule
from broker.coordination.shard import CoordinatorRecord
from broker.transactions.state import (
    NO_PRODUCER_ID,
    Transaction,
    TransactionPartition,
    TransactionState,
)
from protocol.compiler import decode, encode_bytes
from protocol.errors import DecodeError
from protocol.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from protocol.primitives import encode_uvarint

KEY_VERSION: Final = 0
PLAIN_VALUE: Final = 0
FLEXIBLE_VALUE: Final = 1
_VERSION_BYTES: Final = 2
KEYS_MAX: Final = 10_000
"""Limit of the remembered keys: each transaction writes the key of its id three times."""
PARTITION_SETS_MAX: Final = 1_000
"""Limit of the remembered sets of partitions: most transactions of an application have the same partitions."""
REMEMBERED_PARTITIONS: Final = 32
"""Limit of the partitions in a remembered set."""
_PARTS_OF_TOPIC: Final = 5

_HEAD: Final = struct.Struct(">hqhib")
_TIMES: Final = struct.Struct(">qq")
_LONG_TAG: Final = struct.Struct(">BBq")
_SHORT_TAG: Final = struct.Struct(">BBh")
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_TRANSACTION_VERSION, _NEXT_PRODUCER_EPOCH = range(4)
"""Tags of the value's fields."""

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
    value = _flexible_value(transaction) if value_version >= FLEXIBLE_VALUE else _plain_value(transaction)
    return CoordinatorRecord(_key(transactional_id), value, TransactionWritten(transactional_id, transaction))


def _plain_value(transaction: Transaction) -> bytes:
    return PLAIN_VALUE.to_bytes(_VERSION_BYTES, "big") + encode_bytes(_message(transaction), PLAIN_VALUE)


def _flexible_value(transaction: Transaction) -> bytes:
    """Encode the value by two fixed-width structures around the partitions, which are remembered.

    Each transaction writes three values, at a fifth of the cost of the schema's encoder. A change of the schema fails
    the test that compares both.
    """
    partitions = None if transaction.state is TransactionState.EMPTY else transaction.partitions
    head = _HEAD.pack(
        FLEXIBLE_VALUE,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        transaction.state,
    )
    times = _TIMES.pack(transaction.last_update_ms, transaction.start_ms)
    return b"".join((head, _partitions(partitions), times, _tags(transaction)))


def _tags(transaction: Transaction) -> bytes:
    """Encode the tagged fields that differ from their defaults."""
    tags: list[bytes] = []
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags.append(_LONG_TAG.pack(_PREVIOUS_PRODUCER_ID, 8, transaction.previous_producer_id))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags.append(_LONG_TAG.pack(_NEXT_PRODUCER_ID, 8, transaction.next_producer_id))
    if transaction.version:
        tags.append(_SHORT_TAG.pack(_CLIENT_TRANSACTION_VERSION, 2, transaction.version))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags.append(_SHORT_TAG.pack(_NEXT_PRODUCER_EPOCH, 2, 0))
    return bytes((len(tags),)) + b"".join(tags)


def _partitions(partitions: frozenset[TransactionPartition] | None) -> bytes:
    """Return the compact array of the partitions as in the schema; None is null."""
    if partitions is None:
        return b"\0"
    return _array(partitions) if len(partitions) > REMEMBERED_PARTITIONS else _remembered_array(partitions)


@lru_cache(PARTITION_SETS_MAX)
def _remembered_array(partitions: frozenset[TransactionPartition]) -> bytes:
    return _array(partitions)


def _array(partitions: frozenset[TransactionPartition]) -> bytes:
    topics: list[bytes] = []
    for topic, indexes in _by_topic(partitions).items():
        name = topic.encode()
        topics += (encode_uvarint(len(name) + 1), name, encode_uvarint(len(indexes) + 1))
        topics += (struct.pack(f">{len(indexes)}i", *indexes), b"\0")
    return encode_uvarint(len(topics) // _PARTS_OF_TOPIC + 1) + b"".join(topics)


def _by_topic(partitions: frozenset[TransactionPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def _message(transaction: Transaction) -> TransactionLogValue:
    is_empty = transaction.state is TransactionState.EMPTY
    topics = _by_topic(transaction.partitions)
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if is_empty else [PartitionsSchema(*each) for each in topics.items()],
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )


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
