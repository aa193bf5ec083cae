"""The straight path of an append: an ordinary batch that needs no decision, in one pass.

A batch takes this path if it is valid and alone, belongs to the log's latest leader epoch, fits into the active
segment, and continues the sequence and the transaction of a known producer, or has no producer. `Log.append_generally`
takes all others. Both paths give the same answers and leave the same state (tests/storage/test_straight_append.py).
"""

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer
from protocol.records.batch import CONTROL_FLAG, MAX_SEQUENCE, TRANSACTIONAL_FLAG
from storage.producer_state import Origin, ProducerEntry
from storage.validation import Admitted

if TYPE_CHECKING:
    from storage.log import Log

NO_APPEND_TIME: Final = -1
COPIED_BYTES: Final = 4096
"""Largest read-only batch that is copied in order to set its offset; a larger one is written in two parts."""

_OFFSET_LENGTH_EPOCH: Final = Struct(">qii")


class AppendInfo(NamedTuple):
    """The result of an append. `flush_due`: flush.messages requires a `flush` before the append is acknowledged.

    `log_append_time_ms` is -1 under CreateTime. For a duplicate it is the greatest timestamp of the repeated batch, as
    in Kafka.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    flush_due: bool


def append_straight(
    log: "Log", admitted: Admitted, leader_epoch: LeaderEpoch, now_ms: int, origin: Origin
) -> AppendInfo | None:
    """Append a valid batch; return None, with nothing done, if it needs the general path. Raises LogDirFailure."""
    header, batch = admitted
    _, length, _, _, _, attributes, delta, _, timestamp, producer_id, producer_epoch, sequence, _ = header
    if log.failure is not None or leader_epoch != log.epochs.latest_epoch or attributes & CONTROL_FLAG:
        return None
    entry: ProducerEntry | None = None
    if producer_id >= 0:
        entry = log.producers.entries.get(producer_id)
        if entry is None or origin is not Origin.CLIENT or producer_epoch != entry.epoch:
            return None
        if sequence < 0 or sequence != entry.following_sequence or sequence + delta > MAX_SEQUENCE:
            return None
        if (attributes & TRANSACTIONAL_FLAG != 0) != (entry.transaction_start >= 0):
            return None
    config, segment, first = log.config, log.active_segment, log.log_end_offset
    last = first + delta
    written: Buffer = batch
    if batch.readonly:
        if len(batch) > COPIED_BYTES:
            return None
        written = bytearray(batch)
    if segment.must_roll(config, len(batch), timestamp, last, now_ms):
        return None
    _OFFSET_LENGTH_EPOCH.pack_into(written, 0, first, length, leader_epoch)
    try:
        segment.append(written, last, timestamp)
    except OSError as error:
        segment.discard_unnoted()
        raise log.fail(error) from error
    log.log_end_offset = log.producers.end_offset = last + 1
    log.appended_messages += delta + 1
    if entry is not None:
        entry.extend(last, delta, timestamp)
        if entry.transaction_start >= 0:
            log.verifications.end(producer_id)
    return AppendInfo(
        first,
        last,
        timestamp if config.is_log_append_time else NO_APPEND_TIME,
        log.log_start_offset,
        False,
        log.appended_messages - log.flushed_messages >= config.flush_messages,
    )
