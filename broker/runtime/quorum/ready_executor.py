"""The writing and syncing of Readys: election state, log operations, fsyncs (`broker/quorum/ready.py`).

Threads. Batches are appended on the loop, into the page cache, where readers on the loop find them. Blocking work
(election state, fsync, truncation, snapshot pages) runs on the IO thread of the log, in order. One thread owns the log
at a time: while the IO thread truncates it, the loop does not read it. Appends run beside an fsync. A Trim is
postponed to the end of the fsync, and later Readys do not wait for it: nothing depends on it but the next fsync, which
deletes the files. Only the replacement of the log waits for a postponed Trim.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from broker.quorum.core import QuorumCore
from broker.quorum.identity import Instant
from broker.quorum.ready import Append, ElectionState, FinishPart, LogOperation, Ready, StartAt, Trim, TruncateTo
from broker.runtime.loop.append_slices import sliced
from broker.runtime.loop.runtime import Runtime
from broker.runtime.quorum.guarded_calls import GuardedCalls
from broker.runtime.quorum.listener_feeds import ListenerFeeds
from broker.runtime.quorum.metadata_log import FetchedSnapshot
from broker.runtime.quorum.metrics import QuorumMetrics
from broker.runtime.quorum.replica_io import ReplicaIo

_TRUNCATING: Final = (TruncateTo, StartAt)
_LEAVING_FILES: Final = (StartAt, Trim)
"""Operations whose obsolete files are deleted by the next fsync, also on a node that needs no fsync otherwise."""


class ReadyExecution:
    """The progress of one Ready. Checks that no message leaves before the data it depends on is on disk."""

    __slots__ = ("awaits_fsync", "is_state_written", "needs_sync", "operations_done", "ready", "slices")

    def __init__(self, ready: Ready) -> None:
        self.ready = ready
        self.is_state_written = ready.state is None
        self.operations_done = 0
        self.slices: Iterator[Append] | None = None
        self.awaits_fsync = False
        self.needs_sync = ready.must_sync or any(isinstance(each, _LEAVING_FILES) for each in ready.log)

    def check_log_may_change(self) -> None:
        assert self.is_state_written, "the log must not change before the election state is on disk"

    def check_is_written(self) -> None:
        assert self.is_state_written, "messages must not leave before the election state is on disk"
        assert self.operations_done == len(self.ready.log), "messages must not leave before all log operations are done"


class ReadyExecutor:
    """Writes one Ready at a time and calls `on_written`; calls `on_durable` for each, in order, after its fsync."""

    def __init__(
        self,
        core: QuorumCore,
        io: ReplicaIo,
        runtime: Runtime,
        calls: GuardedCalls,
        *,
        feeds: ListenerFeeds,
        metrics: QuorumMetrics,
        on_written: Callable[[Ready], None],
        on_durable: Callable[[Ready], None],
    ) -> None:
        self._core = core
        self._io = io
        self._log = io.log
        self._runtime = runtime
        self._calls = calls
        self._feeds = feeds
        self._metrics = metrics
        self._on_written = on_written
        self._on_durable = on_durable
        self._writing: ReadyExecution | None = None
        self._unsynced: deque[ReadyExecution] = deque()
        self._is_syncing = False
        self._postponed_trim: Trim | None = None
        """The latest Trim during the fsync under way; it includes earlier ones."""
        self.is_truncating = False
        """Whether the IO thread truncates the log, so that no other thread may read it."""
        self.election = io.election
        """The election state on disk; None before the first write."""

    @property
    def is_busy(self) -> bool:
        """Whether a Ready is being written."""
        return self._writing is not None

    # Step 1: the election state

    def begin(self, ready: Ready) -> None:
        """Start to execute a Ready."""
        execution = self._writing = ReadyExecution(ready)
        state = ready.state
        if state is None:
            self._operate(execution)
        else:
            write = partial(self._io.state_file.write, state)
            self._calls.blocking(write, lambda _: self._on_state_written(execution, state))

    def _on_state_written(self, execution: ReadyExecution, state: ElectionState) -> None:
        self.election = state
        execution.is_state_written = True
        self._operate(execution)

    # Step 2: the log

    def _operate(self, execution: ReadyExecution) -> None:
        execution.check_log_may_change()
        operations = execution.ready.log
        while execution.operations_done < len(operations):
            operation = operations[execution.operations_done]
            if self._must_await_fsync(operation):
                execution.awaits_fsync = True
                return  # `_on_synced` continues
            if isinstance(operation, Append):
                if not self._append_slice(execution, operation):
                    return
            elif isinstance(operation, FinishPart):
                self._start_finishing(operation)
            elif isinstance(operation, Trim):
                self._trim(operation)
            else:
                self._operate_blocking(execution, operation)
                return
            execution.operations_done += 1
        self._finish_writing(execution)

    def _append_slice(self, execution: ReadyExecution, append: Append) -> bool:
        """Append one slice, and schedule the rest for later loop iterations. Return whether the append is complete."""
        if execution.slices is None:
            facts = self._core.facts
            if facts.leader.leader_id != facts.node_id:
                self._metrics.fetched_records += append.end_offset - self._log.log_end_offset
            execution.slices = sliced(append)
        piece = next(execution.slices)
        self._log.perform(piece, self._runtime.clock.now_ms())
        if piece.end_offset < append.end_offset:
            self._runtime.loop.call_soon(lambda: self._calls.run(lambda: self._continue(execution)))
            return False
        execution.slices = None
        return True

    def _must_await_fsync(self, operation: LogOperation) -> bool:
        """Whether an operation waits for the fsync under way: the replacement of the log, if a Trim is postponed."""
        return self._postponed_trim is not None and isinstance(operation, _TRUNCATING)

    def _trim(self, operation: Trim) -> None:
        """Trim the log, now or at the end of the fsync under way."""
        if self._is_syncing:
            self._postponed_trim = operation
        else:
            self._log.perform(operation, self._runtime.clock.now_ms())

    def _perform_postponed_trim(self) -> None:
        trim, self._postponed_trim = self._postponed_trim, None
        if trim is not None:
            self._log.perform(trim, self._runtime.clock.now_ms())

    def _continue(self, execution: ReadyExecution) -> None:
        self._operate(execution)
        self._calls.resume()

    def _operate_blocking(self, execution: ReadyExecution, operation: LogOperation) -> None:
        if isinstance(operation, _TRUNCATING):
            self.is_truncating = True
            self._feeds.pause()
        work = partial(self._log.perform, operation, self._runtime.clock.now_ms())
        self._calls.blocking(work, lambda _: self._on_operated(execution, operation))

    def _on_operated(self, execution: ReadyExecution, operation: LogOperation) -> None:
        execution.operations_done += 1
        if isinstance(operation, _TRUNCATING):
            self.is_truncating = False
            if isinstance(operation, StartAt):
                self._feeds.newest_snapshot = operation.snapshot_id
            self._feeds.resume()
        self._operate(execution)

    def _start_finishing(self, part: FinishPart) -> None:
        """Check and install a snapshot beside the execution of Readys. The core fetches nothing until the outcome."""
        work = partial(self._log.perform, part, self._runtime.clock.now_ms())
        self._calls.reading(work, partial(self._on_finished, part))

    def _on_finished(self, part: FinishPart, outcome: FetchedSnapshot | None) -> None:
        stored, control = (None, ()) if outcome is None else outcome
        self._count_received(part, is_whole=stored is not None)
        clock = self._runtime.clock
        now = Instant(clock.monotonic_ms(), clock.now_ms())
        self._core.on_snapshot_fetched(part.snapshot_id, stored, control, now)

    def _count_received(self, part: FinishPart, *, is_whole: bool) -> None:
        self._metrics.imported_snapshots += is_whole and part.is_imported
        self._metrics.fetched_snapshots += is_whole and not part.is_imported
        if part.is_imported and self._io.imports is not None:
            self._io.imports.on_adopted(part.snapshot_id, is_whole=is_whole)

    # Steps 3 to 6: the fsync, and what leaves before and after it

    def _finish_writing(self, execution: ReadyExecution) -> None:
        execution.check_is_written()
        self._writing = None
        self._on_written(execution.ready)
        self._unsynced.append(execution)
        self._sync()

    def _sync(self) -> None:
        """Complete the Readys that wait for no fsync; start the fsync of the others unless one is under way."""
        while self._unsynced and not self._is_syncing:
            if self._unsynced[0].needs_sync:
                self._is_syncing = True
                self._calls.blocking(self._log.sync, partial(self._on_synced, len(self._unsynced)))
            else:
                self._on_durable(self._unsynced.popleft().ready)

    def _on_synced(self, count: int, _end_offset: int) -> None:
        """Complete the oldest `count` Readys, which were written before the fsync began."""
        self._is_syncing = False
        for _ in range(count):
            self._on_durable(self._unsynced.popleft().ready)
        self._perform_postponed_trim()
        if self._writing is not None and self._writing.awaits_fsync:
            self._writing.awaits_fsync = False
            self._operate(self._writing)
        self._sync()
        if self._log.must_save_synced_end:
            self._calls.blocking(self._log.save_synced_end, _ignore)


def _ignore(_done: None) -> None:
    """Ignore the result."""
