"""Sequences that were refused with a retriable error, so that no later batch of the producer is written before them.

A new leader refuses requests until its log is ready. An idempotent producer sends several requests at once, and the
leader may refuse the first one and accept the second. The log knows nothing of the producer and accepts any sequence
from it, so the second batch would be written first. The first batch is then out of order for ever: the producer repeats
it until its delivery time-out, and the records are lost. Apache Kafka's brokers have this fault.

A broker notes the lowest sequence of a producer epoch that it has refused, by partition. As long as the log does not
know the producer epoch, later sequences are out of order. Clients repeat such a batch behind the first one.
"""

from collections.abc import Hashable
from typing import Final, NamedTuple

from broker.metadata.image.topic_names import MAX_NAME_LENGTH
from broker.runtime.partitions.partition import Partition, RecordsRefused
from protocol.errors import ErrorCode
from protocol.primitives import Buffer
from protocol.records.batch import parse_header
from protocol.records.errors import MalformedBatch
from storage.errors import InvalidRecords, Rejection

RETRIABLE_ERRORS: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
    }
)
"""The errors after which a producer repeats the same batch."""
NOTES_MAX: Final = 16_384
"""The number of notes; the oldest note is dropped for another one."""
NOTE_MS: Final = 300_000
"""A producer has given a batch up after this time (librdkafka: `message.timeout.ms`) and has raised its epoch."""


class _Key(NamedTuple):
    topic: Hashable
    partition: int
    producer_id: int
    producer_epoch: int


class _Note(NamedTuple):
    sequence: int
    noted_ms: int


class RefusedSequences:
    """The notes of one broker. A topic is named as in requests, by name or id; all times are in ms."""

    def __init__(self) -> None:
        self._notes: dict[_Key, _Note] = {}

    def __len__(self) -> int:
        return len(self._notes)

    def note(self, topic: Hashable, index: int, records: Buffer | None, now_ms: int) -> None:
        """Note the batch of an idempotent producer that was refused with one of `RETRIABLE_ERRORS`."""
        found = _producer_of(topic, index, records)
        if found is None or (isinstance(topic, str) and len(topic) > MAX_NAME_LENGTH):
            return
        key, sequence = found
        known = self._notes.pop(key, None)
        if known is not None and now_ms - known.noted_ms < NOTE_MS:
            sequence = min(sequence, known.sequence)
        elif len(self._notes) >= NOTES_MAX:
            del self._notes[next(iter(self._notes))]
        self._notes[key] = _Note(sequence, now_ms)

    def check(self, topic: Hashable, partition: Partition, records: Buffer, now_ms: int) -> None:
        """Raise RecordsRefused OUT_OF_ORDER_SEQUENCE_NUMBER if an earlier batch of a new producer was refused."""
        found = _producer_of(topic, partition.index, records)
        if found is None:
            return
        key, sequence = found
        note = self._notes.get(key)
        if note is None:
            return
        entry = partition.log.producers.entries.get(key.producer_id)
        is_known = entry is not None and entry.epoch >= key.producer_epoch
        if is_known or sequence <= note.sequence or now_ms - note.noted_ms >= NOTE_MS:
            del self._notes[key]
            return
        message = (
            f"producer {key.producer_id} (epoch {key.producer_epoch}) sent sequence {sequence}, "
            f"but sequence {note.sequence} was refused before"
        )
        raise RecordsRefused(
            InvalidRecords(Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER, message), partition.log.log_start_offset
        )


def _producer_of(topic: Hashable, index: int, records: Buffer | None) -> tuple[_Key, int] | None:
    """Return the key and the base sequence of a batch; None for a batch without sequence."""
    if records is None:
        return None
    try:
        header = parse_header(records)
    except MalformedBatch:
        return None
    if header.producer_id < 0 or header.base_sequence < 0:
        return None
    return _Key(topic, index, header.producer_id, header.producer_epoch), header.base_sequence
