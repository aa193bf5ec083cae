"""Reads of a hosted partition for Fetch and OffsetForLeaderEpoch: fencing, bounds and divergence.

Functions over a `Partition`. They change nothing but, for a follower's fetch, the leader's view of that follower. The
checks run in Kafka's order, which decides the error code of a request with two errors.
"""

from typing import NamedTuple

from broker.replication.epochs import UNKNOWN_EPOCH, EpochEnd, check_leader_epoch, has_diverged
from broker.replication.leader import UNKNOWN_BROKER_EPOCH, FollowerFetch, LeaderRole
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.reads import FetchIsolation, FetchTarget, LogReadResult
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from storage.errors import LogDirFailure, OffsetMovedToTier, OffsetOutOfRange
from storage.local_log import LogSlice
from storage.log import Log

CONSUMER_ID = BrokerId(-1)


class FetchParams(NamedTuple):
    """The reader of a fetch (Kafka's FetchParams). `broker_id` is -1 for consumers, `broker_epoch` -1 where a request
    lacks it.

    `needs_leader`: followers, and consumers of old versions, read from the leader only. `rack` is the consumer's rack,
    "" if unknown.
    """

    isolation: FetchIsolation
    needs_leader: bool
    broker_id: BrokerId = CONSUMER_ID
    broker_epoch: BrokerEpoch = UNKNOWN_BROKER_EPOCH
    rack: str = ""

    @property
    def is_follower(self) -> bool:
        return self.broker_id >= 0


class FetchLimits(NamedTuple):
    """The size limit of a read: `max_bytes`, but at least one whole batch if `min_one`."""

    max_bytes: int
    min_one: bool


def read(
    partition: Partition, target: FetchTarget, reader: FetchParams, limits: FetchLimits, *, is_first_look: bool
) -> LogReadResult:
    """Read from the position of `target`. Never raises: errors are in the result.

    Only the first look of a request reports the follower's position; later looks repeat it. For records in remote
    storage only, the result is an error with the offsets: followers get the error, for consumers the records are
    fetched.
    """
    is_follower = reader.broker_id >= 0
    try:
        result = read_straight(partition, target, reader, limits)
        if result is None:
            result = _read(partition, target, reader, limits)
        if is_follower and result.diverging is None:
            if is_first_look:
                _report_follower(partition, target, reader)
            # Offsets that this fetch has committed are news for the next one. A position that a fetch of another
            # session has replaced must be reported again. A follower outside of the ISR must be reported with each
            # fetch, until it is proposed. One that may not join yet rests as well: the session compares this right
            # from request to request (`FetchOptions.rights`), so only the first look may rely on it.
            result.is_idle = (
                result.is_idle
                and partition.log.high_watermark == result.high_watermark
                and _is_reported(partition, target, reader)
                and (
                    partition.isr_updater.is_possible_member(reader.broker_id)
                    or (is_first_look and not partition.isr_updater.may_join(reader.broker_id, reader.broker_epoch))
                )
            )
    except KafkaError as error:
        return LogReadResult(error=error.code)
    except OffsetMovedToTier:
        log = partition.log
        moved = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        return LogReadResult(moved, log.high_watermark, log.last_stable_offset, log.log_start_offset)
    except OffsetOutOfRange:
        return LogReadResult(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    except LogDirFailure as failure:
        return LogReadResult(error=partition.offline(failure).code)
    return result


def read_straight(
    partition: Partition, target: FetchTarget, reader: FetchParams, limits: FetchLimits
) -> LogReadResult | None:
    """Read an ordinary position in one pass; return None for a position that needs the general path.

    Ordinary: this replica leads in the epoch that the target names, a follower is assigned and has the latest epoch of
    the log, no truncation is under way, and the log has the offset. Both paths give the same results
    (tests/broker/fetch/test_straight_fetch.py). Raises OffsetMovedToTier and LogDirFailure.
    """
    role, log, offset = partition.role, partition.log, target.fetch_offset
    if not isinstance(role, LeaderRole) or partition.truncation.offsets is not None:
        return None
    if target.current_leader_epoch != role.epoch and target.current_leader_epoch != UNKNOWN_EPOCH:
        return None
    if target.last_fetched_epoch != UNKNOWN_EPOCH and target.last_fetched_epoch != log.epochs.latest_epoch:
        return None
    if reader.broker_id >= 0 and reader.broker_id not in role.followers:
        return None
    high_watermark, log_start_offset, bound = log.high_watermark, log.log_start_offset, log.log_end_offset
    if not log_start_offset <= offset <= bound or log.failure is not None:
        return None
    isolation, last_stable_offset = reader.isolation, log.last_stable_offset
    if isolation is not FetchIsolation.LOG_END:
        bound = high_watermark if isolation is FetchIsolation.HIGH_WATERMARK else last_stable_offset
    result = LogReadResult(ErrorCode.NONE, high_watermark, last_stable_offset, log_start_offset)
    if offset < bound:
        _add_records(result, log, target, isolation, limits)
    else:
        result.is_idle = True
        if isolation is FetchIsolation.LAST_STABLE:
            result.aborted = []
    return result


def _read(partition: Partition, target: FetchTarget, reader: FetchParams, limits: FetchLimits) -> LogReadResult:
    check_epoch(partition, target.current_leader_epoch, needs_leader=reader.needs_leader)
    if partition.truncation.offsets is not None:
        return LogReadResult(ErrorCode.NONE, *partition.truncation.offsets, is_idle=True)
    if reader.is_follower:
        _check_replica(partition, target, reader)
    log = partition.log
    result = LogReadResult(ErrorCode.NONE, log.high_watermark, log.last_stable_offset, log.log_start_offset)
    if target.last_fetched_epoch != UNKNOWN_EPOCH:
        result.diverging = _divergence(log, target)
    if result.diverging is None:
        _add_records(result, log, target, reader.isolation, limits)
    return result


def redirect(partition: Partition, target: FetchTarget, replica: BrokerId) -> LogReadResult:
    """Redirect a reader to another replica, with the offsets of this one. Never raises."""
    try:
        check_epoch(partition, target.current_leader_epoch, needs_leader=False)
    except KafkaError as error:
        return LogReadResult(error=error.code)
    log = partition.log
    result = LogReadResult(ErrorCode.NONE, log.high_watermark, log.last_stable_offset, log.log_start_offset)
    result.preferred_read_replica = replica
    return result


def check_reader(partition: Partition, current_leader_epoch: LeaderEpoch, *, needs_leader: bool) -> None:
    """Fence a reader by its leader epoch, and refuse reads while the log is truncated. Raises KafkaError."""
    check_epoch(partition, current_leader_epoch, needs_leader=needs_leader)
    if partition.truncation.is_under_way:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def check_epoch(partition: Partition, current_leader_epoch: LeaderEpoch, *, needs_leader: bool) -> None:
    """Fence a reader by its leader epoch. Raises KafkaError."""
    role = partition.role
    error = check_leader_epoch(current_leader_epoch, role.epoch)
    if error is not ErrorCode.NONE:
        raise KafkaError(error)
    if not isinstance(role, LeaderRole) and (needs_leader or partition.awaits_log_start):
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def bound_of(log: Log, isolation: FetchIsolation) -> int:
    """Return the offset below which a reader may read."""
    if isolation is FetchIsolation.HIGH_WATERMARK:
        return log.high_watermark
    return log.last_stable_offset if isolation is FetchIsolation.LAST_STABLE else log.log_end_offset


def epoch_end(partition: Partition, current_leader_epoch: LeaderEpoch, epoch: LeaderEpoch) -> EpochEnd:
    """Answer OffsetForLeaderEpoch as the leader. Raises KafkaError."""
    check_reader(partition, current_leader_epoch, needs_leader=True)
    return EpochEnd(*partition.log.end_offset_for_epoch(epoch))


def _check_replica(partition: Partition, target: FetchTarget, reader: FetchParams) -> None:
    """Refuse a replica that is not assigned. Raises KafkaError.

    A replica that names an epoch may know of a newer reassignment.
    """
    if reader.broker_id not in partition.leader_role.followers:
        named_epoch = target.current_leader_epoch != UNKNOWN_EPOCH
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if named_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _report_follower(partition: Partition, target: FetchTarget, reader: FetchParams) -> None:
    """Report a follower's position: its fetch offset acknowledges everything below. Raises KafkaError for an invalid
    fetch."""
    error = partition.on_follower_fetch(
        FollowerFetch(
            reader.broker_id,
            reader.broker_epoch,
            target.current_leader_epoch,
            target.fetch_offset,
            target.log_start_offset,
            target,
        )
    )
    if error is not ErrorCode.NONE:
        raise KafkaError(error)


def _is_reported(partition: Partition, target: FetchTarget, reader: FetchParams) -> bool:
    """Whether the leader's view of the follower is that of this target."""
    follower = partition.leader_role.followers.get(reader.broker_id)
    return follower is not None and follower.contact is target


def _divergence(log: Log, target: FetchTarget) -> EpochEnd | None:
    """Return the offset to truncate to for a reader with records that this log lacks (KIP-595, KIP-320).

    Raises OffsetOutOfRange if the log does not know the epoch, or no longer has the reader's position.
    """
    leader_end = EpochEnd(*log.end_offset_for_epoch(target.last_fetched_epoch))
    if not leader_end.is_known or target.fetch_offset < log.log_start_offset:
        raise OffsetOutOfRange(target.fetch_offset, log.log_start_offset, log.log_end_offset)
    return leader_end if has_diverged(target.last_fetched_epoch, target.fetch_offset, leader_end) else None


def _add_records(
    result: LogReadResult, log: Log, target: FetchTarget, isolation: FetchIsolation, limits: FetchLimits
) -> None:
    bound = bound_of(log, isolation)
    found = log.read(target.fetch_offset, max(0, limits.max_bytes), bound, limits.min_one)
    result.records = found.data
    result.size_bytes = len(found.data)
    if isolation is FetchIsolation.LAST_STABLE:
        aborted = log.aborted_transactions(target.fetch_offset, found.next_offset) if result.size_bytes else ()
        result.aborted = [(txn.producer_id, txn.first_offset) for txn in aborted]
    if result.size_bytes:
        result.is_cut_by_segment = _ends_at_segment(bound, found, log)
        if found.cold:
            result.cold = found
    else:
        result.is_idle = target.fetch_offset >= bound


def _ends_at_segment(bound: int, found: LogSlice, log: Log) -> bool:
    """Whether more records are readable, but in a later segment: one answer has records of one segment."""
    if found.segment_base == log.active_segment.base_offset:
        return False
    last = log.segments.floor(bound)
    return last is not None and last.base_offset != found.segment_base
