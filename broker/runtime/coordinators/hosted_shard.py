"""A loaded shard on a led partition: runs commands, writes their records, answers when the records are committed.

The records of all commands of one turn of the event loop share one append. They take effect in memory at once, so that
later commands see them, and are appended when the turn ends, or after `linger_ms`. A response waits for the commit of
everything that its command has seen.

The log is asked before the records take effect whether it accepts them (leadership, in-sync replicas). A refusal fails
one command, and memory stays as it is. An append that fails all the same leaves memory ahead of the log: the shard is
discarded and loaded again, and its operations fail with NOT_COORDINATOR. The same holds for an append at an unexpected
offset, which means that another writer has written to the partition.

Three kinds of records are appended first and take effect then, in a batch of their own: those of a transaction, those
that may exceed a batch, and all records where `linger_ms` is 0.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from broker.coordination.shard import CoordinatorRecord, CoordinatorResult, Shard
from broker.direct_future import direct_future
from broker.logs import EventLog
from broker.runtime.coordinators.shard_log import Cancellable, ProducerTransaction, ShardLog
from broker.runtime.loop.runtime import Runtime
from broker.runtime.loop.waiters import Deadline, Loop
from broker.runtime.partitions.transaction_marker import WritableMarker
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch

# A shard's event type is private to the shard, and Python cannot express "S, a Shard of some E".
S = TypeVar("S", bound=Shard[Any, Any])
R = TypeVar("R")

Command: TypeAlias = Callable[[S], CoordinatorResult[Any, R]]
Answer: TypeAlias = R | asyncio.Future[R]

# Bytes of a record beside key and value (varints of lengths and deltas), and of a batch beside its records.
_RECORD_OVERHEAD_BYTES = 32
_BATCH_OVERHEAD_BYTES = 61

_ADAPTIVE_LINGER = -1

_TIMER_RETRY_MS = 500
"""Pause before a timer is due again whose records could not be written; the back-off of Kafka's coordinator timers."""

_log = EventLog(__name__)


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """Time limits of writes.

    `linger_ms` is the time for which an append waits for further records: 0 none, −1 until the requests that arrived
    together are handled. `commit_timeout_ms` limits the wait for the commit.
    """

    linger_ms: int
    commit_timeout_ms: int


class CoordinatorOperation(Generic[R]):
    """A command that has run: its result, and the outcome of the result's records."""

    __slots__ = ("_error", "_future", "_is_settled", "result")

    def __init__(self, result: CoordinatorResult[Any, R]) -> None:
        self.result = result
        self._error = ErrorCode.NONE
        self._is_settled = False
        self._future: asyncio.Future[R] | None = None

    def settle(self, error: ErrorCode) -> None:
        """Complete the operation: deliver the response, or the error."""
        self._is_settled = True
        self._error = error
        if self._future is None or self._future.done():
            return
        if error is ErrorCode.NONE:
            self._future.set_result(self.result.response)
        else:
            self._future.set_exception(KafkaError(error))

    @property
    def has_failed(self) -> bool:
        """Whether the records could not be written."""
        return self._is_settled and self._error is not ErrorCode.NONE

    def answer(self, loop: Loop) -> Answer[R]:
        """Return the response, or a future of it. Raise KafkaError when the operation has failed already."""
        if not self._is_settled:
            self._future = direct_future(loop)
            return self._future
        if self._error is not ErrorCode.NONE:
            raise KafkaError(self._error)
        return self.result.response


class _Uncommitted:
    """Operations whose last record is at `offset`, until its commit or a timeout."""

    __slots__ = ("deadline", "offset", "operations", "waiter")

    def __init__(self, operations: list[CoordinatorOperation[Any]], offset: int) -> None:
        self.operations = operations
        self.offset = offset
        self.deadline: Deadline | None = None
        self.waiter: Cancellable | None = None

    def release(self) -> list[CoordinatorOperation[Any]]:
        """Cancel the wait and return the operations, once."""
        operations, self.operations = self.operations, []
        if self.deadline is not None:
            self.deadline.cancel()
        if self.waiter is not None:
            self.waiter.cancel()
        return operations


class HostedShard(Generic[S]):
    """Drives `shard`, whose state is that of the log up to `next_offset`. Calls `on_broken` to discard it."""

    def __init__(
        self,
        runtime: Runtime,
        shard: S,
        log: ShardLog,
        leader_epoch: LeaderEpoch,
        next_offset: int,
        limits: WriteLimits,
        on_broken: Callable[[], None],
    ) -> None:
        self.shard = shard
        self.leader_epoch = leader_epoch
        self._partition_log = log
        self._next_offset = next_offset
        self._limits = limits
        self._clock = runtime.clock
        self._loop = runtime.loop
        self._deadlines = runtime.deadlines
        self._on_broken = on_broken
        self._open: list[CoordinatorOperation[Any]] = []
        self._open_bytes = _BATCH_OVERHEAD_BYTES
        self._flush_handle: Cancellable | None = None
        self._uncommitted: dict[_Uncommitted, None] = {}
        self._wake: Deadline | None = None
        self._wake_ms = 0.0
        self._is_closed = False
        self._schedule_wake()

    # Commands.

    def execute(self, command: Command[S, R], *, soft: bool = False) -> Answer[R]:
        """Run the command. Raise KafkaError when the command refuses, or the log refuses its records.

        A result without records is returned at once if it rests on committed state, or on soft state alone (`soft`).
        """
        result = command(self.shard)
        changes_nothing = not result.records and result.atomic and result.on_outcome is None
        if changes_nothing and (soft or self._is_committed):
            self._schedule_wake()
            return result.response
        return self._run(result, soft).answer(self._loop)

    def post(self, command: Command[S, R], *, soft: bool = False) -> None:
        """Run a command that answers through replies. Raise KafkaError if it refuses."""
        self._run(command(self.shard), soft)

    def execute_in_transaction(self, command: Command[S, R], transaction: ProducerTransaction) -> Answer[R]:
        """Run a command whose records belong to a producer's transaction and take effect with its marker.

        The records are a batch of their own. Raise KafkaError.
        """
        self._flush()
        self._check_open()
        operation = CoordinatorOperation(command(self.shard))
        if operation.result.records:
            self._write_now(operation, transaction)
        self._await_commit(operation)
        return operation.answer(self._loop)

    def end_transaction(self, marker: WritableMarker) -> Answer[None]:
        """Write a transaction marker and apply it; the answer follows its commit. Raise KafkaError."""
        self._flush()
        self._check_open()
        offset = self._partition_log.append_marker(marker, self.leader_epoch, self._clock.now_ms())
        self._check_offset(offset, self._next_offset)
        try:
            self.shard.replay_end_transaction(marker.producer_id, marker.is_commit)
        except BaseException:
            self._on_broken()
            raise
        self._next_offset += 1
        operation = CoordinatorOperation[None](CoordinatorResult(None))
        self._await_commit(operation)
        return operation.answer(self._loop)

    def close(self) -> None:
        """Fail operations in progress and unload the shard: this node no longer coordinates the partition."""
        self._is_closed = True
        if self._wake is not None:
            self._wake.cancel()
        operations = self._take_open()
        for uncommitted in list(self._uncommitted):
            operations.extend(uncommitted.release())
        self._uncommitted.clear()
        self.shard.on_unloaded()
        self._settle(operations, ErrorCode.NOT_COORDINATOR)

    @property
    def _is_committed(self) -> bool:
        """Whether all records that the state rests on are committed."""
        return self._partition_log.high_watermark >= self._next_offset

    def _check_open(self) -> None:
        """Raise KafkaError NOT_COORDINATOR if the shard is closed, possibly by a failed append a moment ago."""
        if self._is_closed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def _run(self, result: CoordinatorResult[Any, R], soft: bool) -> CoordinatorOperation[R]:
        operation = CoordinatorOperation(result)
        self._carry_out(operation, soft)
        self._schedule_wake()
        return operation

    def _carry_out(self, operation: CoordinatorOperation[Any], soft: bool) -> None:
        result = operation.result
        if not result.atomic:
            self._write_in_parts(operation)
        elif result.records:
            self._write(operation)
        elif soft:
            self._settle([operation], ErrorCode.NONE)
        elif self._open:
            self._open.append(operation)
        else:
            self._await_commit(operation)

    # Writing.

    def _write(self, operation: CoordinatorOperation[Any]) -> None:
        """Write the records of a decision.

        An append of earlier records may have to come first, and may commit at once. The outcomes of the earlier
        operations can decide further records, so they wait until the records of this decision have taken effect.
        """
        size = sum(map(_size_of, operation.result.records))
        is_alone = self._limits.linger_ms == 0 or _BATCH_OVERHEAD_BYTES + size > self._partition_log.max_batch_bytes
        is_full = self._open_bytes + size > self._partition_log.max_batch_bytes
        earlier = self._append_open() if is_alone or is_full else None
        if is_alone:
            own = self._append_first(operation)
            self._watch(earlier)
            self._watch(own)
        else:
            self._add_to_open(operation, size)
            self._watch(earlier)

    def _add_to_open(self, operation: CoordinatorOperation[Any], size: int) -> None:
        """Let the records take effect, and leave their append to the end of the turn."""
        try:
            self._check_open()
            self._partition_log.check_append(self.leader_epoch)
        except KafkaError as error:
            _log.warning("Coordinator write failed", error=str(error), records=len(operation.result.records))
            self._settle([operation], error.code)
            return
        try:
            self._replay(operation.result, -1)
        except BaseException:
            self._on_broken()
            self._settle([operation], ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        self._open.append(operation)
        self._open_bytes += size
        self._flush_later()

    def _flush_later(self) -> None:
        if self._flush_handle is not None:
            return
        if self._limits.linger_ms == _ADAPTIVE_LINGER:
            self._flush_handle = self._loop.call_soon(self._flush)
        else:
            self._flush_handle = self._deadlines.after_ms(self._limits.linger_ms, self._flush)

    def _flush(self) -> None:
        """Append the records that have taken effect in memory, also those that the outcomes decide."""
        while self._open:
            self._watch(self._append_open())

    def _append_open(self) -> _Uncommitted | None:
        """Append the records that have taken effect in memory. Return their operations; None without any."""
        if not self._open:
            return None
        operations = self._take_open()
        pairs = _pairs(operations)
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            first_offset = self._partition_log.append(pairs, self.leader_epoch, self._clock.now_ms())
            self._check_offset(first_offset, self._next_offset - len(pairs))
            error = ErrorCode.NONE
        except KafkaError as refusal:
            _log.warning("Reloading a coordinator: its log refused records", error=str(refusal), records=len(pairs))
            error = ErrorCode.NOT_COORDINATOR
        finally:
            if error is not ErrorCode.NONE:
                self._on_broken()
                self._settle(operations, error)
        return self._register(operations) if error is ErrorCode.NONE else None

    def _append_first(self, operation: CoordinatorOperation[Any]) -> _Uncommitted | None:
        """Append the records in a batch of their own before they take effect. Return None after a refusal."""
        try:
            error = self._append_and_replay(operation)
        except BaseException:
            self._on_broken()
            self._settle([operation], ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        if error is ErrorCode.NONE:
            return self._register([operation])
        self._settle([operation], error)
        return None

    def _write_now(self, operation: CoordinatorOperation[Any], transaction: ProducerTransaction) -> None:
        try:
            error = self._append_and_replay(operation, transaction)
        except BaseException:
            self._on_broken()
            raise
        if error is not ErrorCode.NONE:
            raise KafkaError(error)

    def _take_open(self) -> list[CoordinatorOperation[Any]]:
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        operations, self._open = self._open, []
        self._open_bytes = _BATCH_OVERHEAD_BYTES
        return operations

    def _write_in_parts(self, operation: CoordinatorOperation[Any]) -> None:
        """Write the records in several batches. A clean-up can exceed one batch, and its records are independent."""
        earlier = self._append_open()
        error = ErrorCode.NONE
        for part in _parts(operation.result.records, self._partition_log.max_batch_bytes):
            error = self._append_and_replay(
                CoordinatorOperation(CoordinatorResult(None, part, operation.result.replayed))
            )
            if error is not ErrorCode.NONE:
                break
        own = self._register([operation])
        self._watch(earlier)
        if error is ErrorCode.NONE:
            self._watch(own)
        else:
            self._on_outcome(own, error)

    def _append_and_replay(
        self, operation: CoordinatorOperation[Any], transaction: ProducerTransaction | None = None
    ) -> ErrorCode:
        pairs = _pairs([operation])
        try:
            self._check_open()
            first_offset = self._partition_log.append(pairs, self.leader_epoch, self._clock.now_ms(), transaction)
            self._check_offset(first_offset, self._next_offset)
        except KafkaError as error:
            _log.warning("Coordinator write failed", error=str(error), records=len(pairs))
            return error.code
        self._replay(operation.result, -1 if transaction is None else transaction.producer_id)
        return ErrorCode.NONE

    def _check_offset(self, first_offset: int, expected: int) -> None:
        """Discard the shard if it does not match its log. Raise KafkaError NOT_COORDINATOR."""
        if first_offset != expected:
            _log.error(
                "Reloading a coordinator: another writer wrote to its partition", at=first_offset, expected=expected
            )
            self._on_broken()
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def _replay(self, result: CoordinatorResult[Any, Any], producer_id: int) -> None:
        if result.replayed:
            for offset, record in enumerate(result.records, self._next_offset):
                self.shard.replay(record.event, offset, producer_id)
        self._next_offset += len(result.records)

    # Answering.

    def _await_commit(self, operation: CoordinatorOperation[Any]) -> None:
        """Complete the operation once all records appended so far are committed."""
        self._watch(self._register([operation]))

    def _register(self, operations: list[CoordinatorOperation[Any]]) -> _Uncommitted:
        """Keep the operations until `_watch` completes them, or `close` fails them."""
        uncommitted = _Uncommitted(operations, self._next_offset - 1)
        self._uncommitted[uncommitted] = None
        return uncommitted

    def _watch(self, uncommitted: _Uncommitted | None) -> None:
        """Complete registered operations when their offset is committed, possibly at once."""
        if uncommitted is None or uncommitted not in self._uncommitted:
            return
        offset = uncommitted.offset
        if self._partition_log.high_watermark > offset:
            self._on_outcome(uncommitted, ErrorCode.NONE)
            return
        uncommitted.deadline = self._deadlines.after_ms(
            self._limits.commit_timeout_ms, lambda: self._on_outcome(uncommitted, ErrorCode.REQUEST_TIMED_OUT)
        )
        uncommitted.waiter = self._partition_log.when_committed(
            offset, lambda error: self._on_outcome(uncommitted, error)
        )

    def _on_outcome(self, uncommitted: _Uncommitted, error: ErrorCode) -> None:
        self._uncommitted.pop(uncommitted, None)
        self._settle(uncommitted.release(), error)

    def _settle(self, operations: Iterable[CoordinatorOperation[Any]], error: ErrorCode) -> None:
        """Complete operations: first notify the shard, which may change later responses, then the callers."""
        for operation in operations:
            on_outcome = operation.result.on_outcome
            further = None if on_outcome is None else on_outcome(error)
            operation.settle(error)
            if further is not None and further.records and not self._is_closed:
                self._write(CoordinatorOperation(further))
        if not self._is_closed:
            self._schedule_wake()

    # Timers.

    def _schedule_wake(self) -> None:
        """Schedule a wake-up for the shard's next timer. An early wake-up is cheap, so later timers change nothing."""
        next_ms = self.shard.timers.next_wake_ms
        is_covered = self._wake is not None and self._wake.is_pending and self._wake_ms <= (next_ms or 0.0)
        if next_ms is None or is_covered or self._is_closed:
            return
        if self._wake is not None:
            self._wake.cancel()
        self._wake_ms = next_ms
        self._wake = self._deadlines.after_ms(next_ms - self._clock.monotonic_ms(), self._on_wake)

    def _on_wake(self) -> None:
        self._wake = None
        now_ms = max(self._clock.monotonic_ms(), self._wake_ms)  # the loop's clock may fire slightly early
        try:
            for timer in self.shard.timers.due_timers(now_ms):
                operation = CoordinatorOperation(self.shard.on_timer(timer.cause))
                self._carry_out(operation, soft=False)
                if operation.has_failed and timer.key not in self.shard.timers:
                    self.shard.timers.schedule(timer.key, _TIMER_RETRY_MS, timer.cause)
        except BaseException:
            self._on_broken()  # the remaining causes are lost, e.g. expired sessions
            raise
        self._schedule_wake()


def _size_of(record: CoordinatorRecord[Any]) -> int:
    return len(record.key) + len(record.value or b"") + _RECORD_OVERHEAD_BYTES


def _pairs(operations: Iterable[CoordinatorOperation[Any]]) -> list[tuple[bytes, bytes | None]]:
    return [(record.key, record.value) for each in operations for record in each.result.records]


def _parts(records: Iterable[CoordinatorRecord[Any]], max_bytes: int) -> Iterator[list[CoordinatorRecord[Any]]]:
    part: list[CoordinatorRecord[Any]] = []
    size = _BATCH_OVERHEAD_BYTES
    for record in records:
        record_size = _size_of(record)
        if part and size + record_size > max_bytes:
            yield part
            part, size = [], _BATCH_OVERHEAD_BYTES
        part.append(record)
        size += record_size
    if part:
        yield part
