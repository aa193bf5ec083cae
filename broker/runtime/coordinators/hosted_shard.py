"""A loaded shard on a led partition: runs commands, writes their records, answers when the records are committed.

Memory is never ahead of the log. A command's records are replayed only after the local append, so a failed append needs
no rollback: its commands fail, and their effects were never visible. Records that are appended but not committed are
visible to later commands, whose responses therefore wait for the commit as well.

A short wait before the append lets many small writes share a batch, but commands that run in between do not see them.
Commands therefore come in two kinds:

* `lingers=True` promises that the command neither reads nor removes what other lingering commands write (an
  OffsetCommit reads the membership and adds an offset; a JoinGroup or SyncGroup reads soft state). These commands share
  batches; a command without records is answered at once.
* all other commands see everything: the open batch is appended and replayed before they run, and their own records
  right after.

An append at an unexpected offset means that another writer has written to the partition. The shard then no longer
matches the log, and is discarded and loaded again.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from broker.coordination.shard import CoordinatorRecord, CoordinatorResult, Shard
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

    `linger_ms` is the time for which a write waits for others: 0 none, −1 until the requests that arrived together are
    handled. `commit_timeout_ms` limits the wait for the commit.
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
            self._future = loop.create_future()
            return self._future
        if self._error is not ErrorCode.NONE:
            raise KafkaError(self._error)
        return self.result.response


class _Uncommitted:
    """Operations whose last record is at one offset, until its commit or a timeout."""

    __slots__ = ("deadline", "operations", "waiter")

    def __init__(self, operations: list[CoordinatorOperation[Any]]) -> None:
        self.operations = operations
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

    def execute(self, command: Command[S, R], *, lingers: bool = False) -> Answer[R]:
        """Run the command. Raise KafkaError when the command refuses, or its write fails at once."""
        if not lingers:
            self._flush()
        result = command(self.shard)
        changes_nothing = not result.records and result.atomic and result.on_outcome is None
        if changes_nothing and (lingers or self._is_committed):
            self._schedule_wake()
            return result.response
        return self._run(result, lingers).answer(self._loop)

    def post(self, command: Command[S, R], *, lingers: bool = False) -> None:
        """Run a command that answers through replies. Raise KafkaError if it refuses."""
        if not lingers:
            self._flush()
        self._run(command(self.shard), lingers)

    def execute_in_transaction(self, command: Command[S, R], transaction: ProducerTransaction) -> Answer[R]:
        """Run a command whose records belong to a producer's transaction and take effect with its marker.

        The records are a batch of their own. Raise KafkaError.
        """
        self._flush()
        operation = CoordinatorOperation(command(self.shard))
        if operation.result.records:
            self._write_now(operation, transaction)
        self._await_commit([operation], self._next_offset - 1)
        return operation.answer(self._loop)

    def end_transaction(self, marker: WritableMarker) -> Answer[None]:
        """Write a transaction marker and apply it; the answer follows its commit. Raise KafkaError."""
        self._flush()
        if self._is_closed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        offset = self._partition_log.append_marker(marker, self.leader_epoch, self._clock.now_ms())
        self._check_offset(offset)
        try:
            self.shard.replay_end_transaction(marker.producer_id, marker.is_commit)
        except BaseException:
            self._on_broken()
            raise
        self._next_offset += 1
        operation = CoordinatorOperation[None](CoordinatorResult(None))
        self._await_commit([operation], offset)
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

    def _run(self, result: CoordinatorResult[Any, R], lingers: bool) -> CoordinatorOperation[R]:
        operation = CoordinatorOperation(result)
        self._carry_out(operation, lingers)
        self._schedule_wake()
        return operation

    def _carry_out(self, operation: CoordinatorOperation[Any], lingers: bool) -> None:
        result = operation.result
        if not result.atomic:
            self._write_in_parts(operation)
        elif result.records:
            self._write_alone_or_open(operation, lingers)
        elif lingers:
            self._settle([operation], ErrorCode.NONE)
        else:
            self._await_commit([operation], self._next_offset - 1)

    # Writing.

    def _write_alone_or_open(self, operation: CoordinatorOperation[Any], lingers: bool) -> None:
        if not (lingers or self._open or self._is_closed):
            self._write([operation])
            return
        self._add_to_open(operation)
        self._flush_in_time() if lingers else self._flush()

    def _add_to_open(self, operation: CoordinatorOperation[Any]) -> None:
        size = sum(map(_size_of, operation.result.records))
        if self._open and self._open_bytes + size > self._partition_log.max_batch_bytes:
            self._flush()
        self._open.append(operation)
        self._open_bytes += size

    def _flush_in_time(self) -> None:
        if self._limits.linger_ms == 0:
            self._flush()
        elif self._flush_handle is None and self._open:
            if self._limits.linger_ms == _ADAPTIVE_LINGER:
                self._flush_handle = self._loop.call_soon(self._flush)
            else:
                self._flush_handle = self._deadlines.after_ms(self._limits.linger_ms, self._flush)

    def _flush(self) -> None:
        if self._open or self._flush_handle is not None:
            operations = self._take_open()
            if operations and not self._is_closed:
                self._write(operations)

    def _write(self, operations: list[CoordinatorOperation[Any]]) -> None:
        try:
            error = self._append_and_replay(operations)
        except BaseException:
            self._on_broken()
            self._settle(operations, ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        if error is ErrorCode.NONE:
            self._await_commit(operations, self._next_offset - 1)
        else:
            self._settle(operations, error)

    def _write_now(self, operation: CoordinatorOperation[Any], transaction: ProducerTransaction) -> None:
        try:
            error = self._append_and_replay([operation], transaction)
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
        for part in _parts(operation.result.records, self._partition_log.max_batch_bytes):
            error = self._append_and_replay(
                [CoordinatorOperation(CoordinatorResult(None, part, operation.result.replayed))]
            )
            if error is not ErrorCode.NONE:
                self._settle([operation], error)
                return
        self._await_commit([operation], self._next_offset - 1)

    def _append_and_replay(
        self, operations: list[CoordinatorOperation[Any]], transaction: ProducerTransaction | None = None
    ) -> ErrorCode:
        pairs = [(record.key, record.value) for each in operations for record in each.result.records]
        try:
            first_offset = self._partition_log.append(pairs, self.leader_epoch, self._clock.now_ms(), transaction)
            self._check_offset(first_offset)
        except KafkaError as error:
            _log.warning("Coordinator write failed", error=str(error), records=len(pairs))
            return error.code
        producer_id = -1 if transaction is None else transaction.producer_id
        for each in operations:
            self._replay(each.result, producer_id)
        return ErrorCode.NONE

    def _check_offset(self, first_offset: int) -> None:
        """Discard the shard if it does not match its log. Raise KafkaError NOT_COORDINATOR."""
        if first_offset != self._next_offset:
            _log.error(
                "Reloading a coordinator: another writer wrote to its partition",
                at=first_offset,
                expected=self._next_offset,
            )
            self._on_broken()
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def _replay(self, result: CoordinatorResult[Any, Any], producer_id: int) -> None:
        if result.replayed:
            for offset, record in enumerate(result.records, self._next_offset):
                self.shard.replay(record.event, offset, producer_id)
        self._next_offset += len(result.records)

    # Answering.

    def _await_commit(self, operations: list[CoordinatorOperation[Any]], offset: int) -> None:
        if self._partition_log.high_watermark > offset:
            self._settle(operations, ErrorCode.NONE)
            return
        uncommitted = _Uncommitted(operations)
        self._uncommitted[uncommitted] = None
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
                self._add_to_open(CoordinatorOperation(further))
                self._flush_in_time()
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
        self._flush()
        now_ms = max(self._clock.monotonic_ms(), self._wake_ms)  # the loop's clock may fire slightly early
        try:
            for timer in self.shard.timers.due_timers(now_ms):
                operation = CoordinatorOperation(self.shard.on_timer(timer.cause))
                self._carry_out(operation, lingers=False)
                if operation.has_failed and timer.key not in self.shard.timers:
                    self.shard.timers.schedule(timer.key, _TIMER_RETRY_MS, timer.cause)
        except BaseException:
            self._on_broken()  # the remaining causes are lost, e.g. expired sessions
            raise
        self._schedule_wake()


def _size_of(record: CoordinatorRecord[Any]) -> int:
    return len(record.key) + len(record.value or b"") + _RECORD_OVERHEAD_BYTES


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
