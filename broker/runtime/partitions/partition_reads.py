"""Reading a hosted partition: for Fetch and OffsetForLeaderEpoch, with fencing, bounds and divergence.

Functions over a `Partition`; they change nothing but, for a follower's fetch, what the leader knows of that follower.
The order of checks is Kafka's, because it decides what a reader with two problems is told.
"""

from typing import NamedTuple

from broker.replication.epochs import UNKNOWN_EPOCH, EpochEnd, check_leader_epoch, has_diverged
from broker.replication.leader import FollowerFetch, LeaderRole
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.reads import UNKNOWN, FetchIsolation, FetchTarget, LogReadResult
from protocol.errors import ErrorCode, KafkaError
from storage.errors import LogDirFailure, OffsetMovedToTier, OffsetOutOfRange
from storage.local_log import LogSlice
from storage.log import Log

CONSUMER_ID = -1


class FetchParams(NamedTuple):
    """Who fetches. `broker_id` is -1 for consumers; `broker_epoch` -1 where a follower does not tell it.

    `needs_leader`: followers, and consumers of old versions, read from the leader only. `rack` is where a consumer is,
    "" if it does not tell.
    """

    isolation: FetchIsolation
    needs_leader: bool
    broker_id: int = CONSUMER_ID
    broker_epoch: int = UNKNOWN
    rack: str = ""

    @property
    def is_follower(self) -> bool:
        return self.broker_id >= 0


class ReadLimits(NamedTuple):
    """How much to read: `max_bytes`, but the first batch whole if `min_one`."""

    max_bytes: int
    min_one: bool


def read(
    partition: Partition, target: FetchTarget, reader: FetchParams, limits: ReadLimits, *, is_first_look: bool
) -> LogReadResult:
    """Read from where `target` stands. Never raises: what is wrong is in the result.

    Only the first look of a request tells how far a follower has come; later ones repeat it. What remote storage alone
    has is an error of its own, with the marks: followers are told it as it is, for consumers it is fetched.
    """
    try:
        result = _read(partition, target, reader, limits)
        if reader.is_follower and result.diverging is None:
            if is_first_look:
                _note_follower(partition, target, reader)
            # What this very fetch has committed is news for the next one. And a follower that is not in sync must be
            # looked at with each fetch: the moment when it may join has nothing to do with the log.
            is_settled = partition.log.high_watermark == result.high_watermark
            result.is_idle = result.is_idle and is_settled and partition.isr_updater.is_in_sync(reader.broker_id)
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


def _read(partition: Partition, target: FetchTarget, reader: FetchParams, limits: ReadLimits) -> LogReadResult:
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


def redirect(partition: Partition, target: FetchTarget, replica: int) -> LogReadResult:
    """Send a reader to another replica, with the marks of this one. Never raises."""
    try:
        check_epoch(partition, target.current_leader_epoch, needs_leader=False)
    except KafkaError as error:
        return LogReadResult(error=error.code)
    log = partition.log
    result = LogReadResult(ErrorCode.NONE, log.high_watermark, log.last_stable_offset, log.log_start_offset)
    result.preferred_read_replica = replica
    return result


def check_reader(partition: Partition, current_leader_epoch: int, *, needs_leader: bool) -> None:
    """Fence a reader by the epoch that it believes in, and keep it from a log that is being cut. Raises KafkaError."""
    check_epoch(partition, current_leader_epoch, needs_leader=needs_leader)
    if partition.truncation.is_under_way:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def check_epoch(partition: Partition, current_leader_epoch: int, *, needs_leader: bool) -> None:
    """Fence a reader by the epoch that it believes in. Raises KafkaError."""
    role = partition.role
    error = check_leader_epoch(current_leader_epoch, role.epoch)
    if error is not ErrorCode.NONE:
        raise KafkaError(error)
    if not isinstance(role, LeaderRole) and (needs_leader or partition.awaits_log_start):
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def bound_of(log: Log, isolation: FetchIsolation) -> int:
    """The offset below which a reader may see."""
    if isolation is FetchIsolation.HIGH_WATERMARK:
        return log.high_watermark
    return log.last_stable_offset if isolation is FetchIsolation.LAST_STABLE else log.log_end_offset


def epoch_end(partition: Partition, current_leader_epoch: int, epoch: int) -> EpochEnd:
    """The leader's answer to OffsetForLeaderEpoch. Raises KafkaError."""
    check_reader(partition, current_leader_epoch, needs_leader=True)
    return EpochEnd(*partition.log.end_offset_for_epoch(epoch))


def _check_replica(partition: Partition, target: FetchTarget, reader: FetchParams) -> None:
    """A stranger that names an epoch may know of a reassignment that we have yet to hear of. Raises KafkaError."""
    if reader.broker_id not in partition.leader_role.followers:
        named_epoch = target.current_leader_epoch != UNKNOWN_EPOCH
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if named_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _note_follower(partition: Partition, target: FetchTarget, reader: FetchParams) -> None:
    """Asking for an offset says that everything below it is held. Raises KafkaError for a fetch that does not count."""
    error = partition.on_follower_fetch(
        FollowerFetch(
            reader.broker_id,
            reader.broker_epoch,
            target.current_leader_epoch,
            target.fetch_offset,
            target.log_start_offset,
        )
    )
    if error is not ErrorCode.NONE:
        raise KafkaError(error)


def _divergence(log: Log, target: FetchTarget) -> EpochEnd | None:
    """Where a reader must cut that holds records which this log does not (KIP-595, KIP-320).

    Raises OffsetOutOfRange where the log cannot tell, or no longer has the reader's position.
    """
    leader_end = EpochEnd(*log.end_offset_for_epoch(target.last_fetched_epoch))
    if not leader_end.is_known or target.fetch_offset < log.log_start_offset:
        raise OffsetOutOfRange(target.fetch_offset, log.log_start_offset, log.log_end_offset)
    return leader_end if has_diverged(target.last_fetched_epoch, target.fetch_offset, leader_end) else None


def _add_records(
    result: LogReadResult, log: Log, target: FetchTarget, isolation: FetchIsolation, limits: ReadLimits
) -> None:
    bound = bound_of(log, isolation)
    found = log.read(target.fetch_offset, max(0, limits.max_bytes), bound, limits.min_one)
    result.records = found.data
    result.size_bytes = len(found.data)
    if isolation is FetchIsolation.LAST_STABLE:
        aborted = log.aborted_transactions(target.fetch_offset, found.next_offset) if result.size_bytes else ()
        result.aborted = [(txn.producer_id, txn.first_offset) for txn in aborted]
    if result.size_bytes:
        result.is_cut_by_segment = _ends_before(bound, found, log)
        if found.cold:
            result.cold = found
    else:
        result.is_idle = target.fetch_offset >= bound


def _ends_before(bound: int, found: LogSlice, log: Log) -> bool:
    """Whether more is readable, but only from a later segment: one answer holds records of one segment."""
    if found.segment_base == log.active_segment.base_offset:
        return False
    last = log.segments.floor(bound)
    return last is not None and last.base_offset != found.segment_base
