"""Steps 1 to 3 of a `Ready`: write the election state, execute the log operations, fsync the log.

Threads. Batches are appended on the loop, into the page cache, where readers on the loop find them. Blocking work
(election state, fsync, truncation, snapshot pages) runs on the IO thread. One thread owns the log at a time: while the
IO thread truncates it, the loop does not read it.
"""

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

    __slots__ = ("is_state_written", "is_synced", "operations_done", "ready", "slices")

    def __init__(self, ready: Ready) -> None:
        self.ready = ready
        self.is_state_written = ready.state is None
        self.operations_done = 0
        self.slices: Iterator[Append] | None = None
        self.is_synced = not ready.must_sync and not any(isinstance(each, _LEAVING_FILES) for each in ready.log)

    def check_log_may_change(self) -> None:
        assert self.is_state_written, "the log must not change before the election state is on disk"

    def check_messages_may_leave(self) -> None:
        assert self.is_state_written, "messages must not leave before the election state is on disk"
        assert self.operations_done == len(self.ready.log), "messages must not leave before all log operations are done"
        assert self.is_synced, "messages must not leave before the log is synced"


class ReadyExecutor:
    """Executes one Ready at a time, and calls `on_durable` after its fsync."""

    def __init__(
        self,
        core: QuorumCore,
        io: ReplicaIo,
        runtime: Runtime,
        calls: GuardedCalls,
        *,
        feeds: ListenerFeeds,
        metrics: QuorumMetrics,
        on_durable: Callable[[Ready], None],
    ) -> None:
        self._core = core
        self._io = io
        self._log = io.log
        self._runtime = runtime
        self._calls = calls
        self._feeds = feeds
        self._metrics = metrics
        self._on_durable = on_durable
        self._execution: ReadyExecution | None = None
        self.is_truncating = False
        """Whether the IO thread truncates the log, so that no other thread may read it."""
        self.election = io.election
        """The election state on disk; None before the first write."""

    @property
    def is_busy(self) -> bool:
        """Whether a Ready is in progress."""
        return self._execution is not None

    def complete(self) -> None:
        """End the Ready in progress, after all its steps."""
        self._execution = None

    # Step 1: the election state

    def begin(self, ready: Ready) -> None:
        """Start to execute a Ready."""
        execution = self._execution = ReadyExecution(ready)
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
            if isinstance(operation, Append):
                if not self._append_slice(execution, operation):
                    return
            elif isinstance(operation, Trim):
                self._log.perform(operation, self._runtime.clock.now_ms())
            else:
                self._operate_blocking(execution, operation)
                return
            execution.operations_done += 1
        self._sync(execution)

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

    def _continue(self, execution: ReadyExecution) -> None:
        self._operate(execution)
        self._calls.resume()

    def _operate_blocking(self, execution: ReadyExecution, operation: LogOperation) -> None:
        if isinstance(operation, _TRUNCATING):
            self.is_truncating = True
            self._feeds.pause()
        work = partial(self._log.perform, operation, self._runtime.clock.now_ms())
        self._calls.blocking(work, lambda outcome: self._on_operated(execution, operation, outcome))

    def _on_operated(self, execution: ReadyExecution, operation: LogOperation, outcome: FetchedSnapshot | None) -> None:
        execution.operations_done += 1
        if isinstance(operation, FinishPart):
            stored, control = (None, ()) if outcome is None else outcome
            self._count_received(operation, is_whole=stored is not None)
            clock = self._runtime.clock
            now = Instant(clock.monotonic_ms(), clock.now_ms())
            self._core.on_snapshot_fetched(operation.snapshot_id, stored, control, now)
        elif isinstance(operation, _TRUNCATING):
            self.is_truncating = False
            if isinstance(operation, StartAt):
                self._feeds.newest_snapshot = operation.snapshot_id
            self._feeds.resume()
        self._operate(execution)

    def _count_received(self, part: FinishPart, *, is_whole: bool) -> None:
        self._metrics.imported_snapshots += is_whole and part.is_imported
        self._metrics.fetched_snapshots += is_whole and not part.is_imported
        if part.is_imported and self._io.imports is not None:
            self._io.imports.on_adopted(part.snapshot_id, is_whole=is_whole)

    # Step 3: the fsync

    def _sync(self, execution: ReadyExecution) -> None:
        if execution.is_synced:
            self._finish(execution)
        else:
            self._calls.blocking(self._log.sync, lambda _: self._on_synced(execution))

    def _on_synced(self, execution: ReadyExecution) -> None:
        execution.is_synced = True
        self._finish(execution)

    def _finish(self, execution: ReadyExecution) -> None:
        execution.check_messages_may_leave()
        self._on_durable(execution.ready)
