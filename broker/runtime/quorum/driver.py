"""Runs the quorum core on a disk, a network and an event loop.

Theory. Every input (request, response, timer, append) goes to the core at once and changes memory only. In a separate
loop iteration, so that no callback runs inside the call that caused it, the driver takes the resulting `Ready` and
executes its six steps in the order of `broker/quorum/ready.py`. Readys are written one after the other, also during an
fsync; the next fsync serves all that were written meanwhile.

`ReadyExecutor` performs the steps that change the disk, `PendingResponses` the reads for responses. An error of the
disk or of a listener stops the replica: `on_fatal` is called once, and nothing else happens afterwards.
"""

from asyncio import Future, TimerHandle
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from broker.metrics.quorum import QuorumFigures, kafka_state
from broker.quorum.control_history import Control
from broker.quorum.core import Appended, NotLeader, QuorumCore, QuorumDescription
from broker.quorum.facts import QuorumFacts
from broker.quorum.identity import NO_NODE, Instant, LeaderAndEpoch, SnapshotId
from broker.quorum.messages import UNKNOWN_OFFSET, Request, Response, SendFailure
from broker.quorum.ready import ElectionState, Ready, SendRequest, waits_for_sync
from broker.quorum.settings import StoredSnapshot
from broker.quorum.snapshots.imports import ImportOutcome, ImportStep
from broker.runtime.loop.runtime import Runtime
from broker.runtime.quorum.guarded_calls import GuardedCalls
from broker.runtime.quorum.listener_feeds import ListenerFeeds
from broker.runtime.quorum.metadata_log import RaftMetadataLog, RawSnapshotWriter
from broker.runtime.quorum.metrics import QuorumMetrics
from broker.runtime.quorum.pending_responses import PendingResponses
from broker.runtime.quorum.quorum import CommittedBatch, QuorumListener
from broker.runtime.quorum.ready_executor import ReadyExecutor
from broker.runtime.quorum.replica_io import ReplicaIo
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, LeaderEpoch, Offset

SHUT_DOWN_TIMEOUT_MS: Final = 2_000
"""Longer than an election among the remaining voters. An election that needs the leaving voter cannot succeed later."""


class QuorumDriver:
    """A replica of the metadata log: implements `Quorum`, and responds to requests of other replicas.

    `start` begins. All methods are called on the event loop. The owner of the log closes it.
    """

    def __init__(
        self,
        core: QuorumCore,
        io: ReplicaIo,
        runtime: Runtime,
        *,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`core` was built from the recovered log and `io.election`."""
        self._core = core
        self._io = io
        self._log = io.log
        self._clock = runtime.clock
        self._loop = runtime.loop
        self._on_fatal = on_fatal
        self.metrics = QuorumMetrics()
        snapshots = io.log.recovered.snapshots
        self._calls = GuardedCalls(runtime.io, io.snapshot_io or runtime.io, self._fail, self._advance)
        self._feeds = ListenerFeeds(
            io.log,
            runtime,
            node_id=core.facts.node_id,
            newest_snapshot=snapshots[-1].id if snapshots else None,
            on_failure=self._fail,
        )
        self._executor = ReadyExecutor(
            core,
            io,
            runtime,
            self._calls,
            feeds=self._feeds,
            metrics=self.metrics,
            on_written=self._on_written,
            on_durable=self._on_durable,
        )
        self._responses = PendingResponses(io.log, runtime.loop, self._calls)
        self._is_advance_scheduled = False
        self._is_closed = False
        self._leader = LeaderAndEpoch(None, core.facts.epoch)
        self._high_watermark: int | None = None
        self._leader_watchers: list[Callable[[LeaderAndEpoch], object]] = []
        self._timer: TimerHandle | None = None
        self._timer_deadline_ms = 0.0
        self._uncommitted: deque[tuple[int, float]] = deque()  # (last offset, appended at) of own batches
        self._candidate_since_ms: float | None = None
        self._shut_down: Future[None] | None = None

    # Reading

    @property
    def facts(self) -> QuorumFacts:
        """The core's present state, which may be ahead of the disk and of the listeners."""
        return self._core.facts

    @property
    def node_id(self) -> int:
        return self._core.facts.node_id

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader according to durable state. A leader in memory alone may be elected again in the same epoch."""
        return self._leader

    @property
    def high_watermark(self) -> int | None:
        """The high watermark of which listeners were notified."""
        return self._high_watermark

    @property
    def log_end_offset(self) -> int:
        return self._core.facts.log_end_offset

    @property
    def log_start_offset(self) -> int:
        return self._core.facts.log_start_offset

    @property
    def election(self) -> ElectionState | None:
        """The election state on disk; None before the first write."""
        return self._executor.election

    @property
    def log(self) -> RaftMetadataLog:
        """The log for reads on the loop, unless `is_truncating`."""
        return self._log

    @property
    def is_truncating(self) -> bool:
        """Whether another thread truncates the log, so that the loop must not read it."""
        return self._executor.is_truncating

    def describe(self) -> QuorumDescription:
        """Return the content of a DescribeQuorum response."""
        return self._core.describe(self._now())

    def figures(self) -> QuorumFigures:
        """Return the values of the quorum's metrics."""
        described, election, facts = self.describe(), self.election or ElectionState(), self._core.facts
        is_leader = described.error is ErrorCode.NONE
        state = kafka_state(
            facts.role, has_leader=self._leader.leader_id is not None, has_voted=election.voted_id != NO_NODE
        )
        return QuorumFigures(
            state,
            NO_NODE if self._leader.leader_id is None else self._leader.leader_id,
            facts.epoch,
            election.voted_id,
            UNKNOWN_OFFSET if self._high_watermark is None else self._high_watermark,
            self._log.log_end_offset,
            facts.log_end_epoch,
            facts.ignores_static_voters,
            len(described.voters) if is_leader else -1,
            len(described.observers) if is_leader else -1,
            facts.is_changing_voters,
        )

    # Using

    def start(self) -> None:
        """Join the quorum."""
        self._core.tick(self._now())
        self._schedule_advance()

    def append(self, epoch: LeaderEpoch, frames: Sequence[bytes]) -> Appended:
        """See `Quorum.append`."""
        if self._leader != LeaderAndEpoch(BrokerId(self.node_id), epoch):
            raise NotLeader(f"node {self.node_id} is not the leader of epoch {epoch}")
        now = self._now()
        appended = self._core.append(epoch, frames, now)
        self._feeds.remember(CommittedBatch(*appended[:2], epoch, appended.timestamp_ms, frames))
        self._uncommitted.append((appended.last_offset, now.monotonic_ms))
        self.metrics.appended_records += len(frames)
        self._schedule_advance()
        return appended

    def add_listener(self, listener: QuorumListener) -> None:
        """See `Quorum.add_listener`."""
        self._feeds.add(listener)

    def watch_leader(self, watcher: Callable[[LeaderAndEpoch], object]) -> None:
        """Call `watcher` on every leader change at once; listeners are notified in order with the log instead."""
        self._leader_watchers.append(watcher)

    def resign(self, epoch: int) -> None:
        """Resign as leader of an epoch. No effect in a later epoch."""
        self._core.resign(LeaderEpoch(epoch), self._now())
        self._schedule_advance()

    def handle(self, request: Request) -> "Future[Response]":
        """Handle a request of another replica. The future fails with BROKER_NOT_AVAILABLE if this replica stops."""
        token, future = self._responses.new()
        if not self._is_closed:
            self._core.on_request(token, request, self._now())
            self._schedule_advance()
        return future

    def upgrade_kraft_version(self, version: int) -> "Future[Response]":
        """Upgrade from static to dynamic voters (KAFKA-16538); the result is a ChangeVotersResponse."""
        token, future = self._responses.new()
        if not self._is_closed:
            self._core.upgrade_kraft_version(token, version, self._now())
            self._schedule_advance()
        return future

    # Generated snapshots

    def can_snapshot_at(self, end_offset: int) -> SnapshotId | None:
        """See `QuorumCore.can_snapshot_at`."""
        return self._core.can_snapshot_at(Offset(end_offset))

    def control_before(self, end_offset: int) -> Control:
        """Return the kraft.version and voters that a snapshot with this end offset contains."""
        return self._core.control_before(Offset(end_offset))

    def begin_snapshot(self, snapshot_id: SnapshotId) -> RawSnapshotWriter:
        """Create the snapshot's writer. The caller reports a committed snapshot to `on_snapshot_generated`. Blocks."""
        return self._log.begin_snapshot(snapshot_id)

    def on_snapshot_generated(self, snapshot: StoredSnapshot) -> None:
        """Add a snapshot that is durably on disk."""
        if not self._is_closed:
            newest = self._feeds.newest_snapshot
            if newest is None or snapshot.id.position > newest.position:
                self._feeds.newest_snapshot = snapshot.id
            self._core.on_snapshot_generated(snapshot, self._now())
            self._schedule_advance()

    # Shutting down

    def shut_down(self, timeout_ms: int = SHUT_DOWN_TIMEOUT_MS) -> "Future[None]":
        """Leave the quorum; a leader resigns. The future completes when the quorum no longer needs this replica, or
        after the timeout; then call `close`.
        """
        if self._shut_down is None:
            self._shut_down = self._loop.create_future()
            self._core.shut_down(self._now())
            self._loop.call_at(self._loop.time() + timeout_ms / 1000, self._complete_shut_down)
            self._schedule_advance()
        return self._shut_down

    def close(self) -> None:
        """Stop all work and notifications, and fail pending responses."""
        if self._is_closed:
            return
        self._is_closed = True
        self._calls.close()
        self._leader = LeaderAndEpoch(None, self._leader.epoch)
        self._feeds.close()
        if self._timer is not None:
            self._timer.cancel()
        self._responses.close()
        self._complete_shut_down()

    def _complete_shut_down(self) -> None:
        if self._shut_down is not None and not self._shut_down.done():
            self._shut_down.set_result(None)

    def _fail(self, error: BaseException) -> None:
        if not self._is_closed:
            self.close()
            self._on_fatal(error)

    # Taking Readys

    def _schedule_advance(self) -> None:
        if not self._is_advance_scheduled and not self._is_closed:
            self._is_advance_scheduled = True
            self._loop.call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._is_advance_scheduled = False
        self._work(self._advance)

    def _work(self, action: Callable[[], None]) -> None:
        began_ms = self._clock.monotonic_ms()
        self._calls.run(action)
        self.metrics.busy_ms += self._clock.monotonic_ms() - began_ms

    def _advance(self) -> None:
        """Write the next Readys unless one is being written, and set the timer."""
        while not self._executor.is_busy and not self._is_closed:
            ready = self._core.take_ready()
            if ready is None:
                break
            self._executor.begin(ready)
        if not self._is_closed:
            self._set_timer()
            if self._shut_down is not None and self._core.is_shut_down:
                self._complete_shut_down()

    def _set_timer(self) -> None:
        """Set the timer, unless it fires before the deadline anyway. Most deadlines are postponed before they pass."""
        deadline = self._core.next_deadline_ms
        if deadline is None or (self._timer is not None and self._timer_deadline_ms <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_deadline_ms = deadline
        delay_ms = max(1.0, deadline - self._clock.monotonic_ms())
        self._timer = self._loop.call_at(self._loop.time() + delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._work(self._tick)

    def _tick(self) -> None:
        now, deadline = self._now(), self._core.next_deadline_ms
        if deadline is not None and deadline <= now.monotonic_ms:
            self._core.tick(now)
        self._advance()

    def _now(self) -> Instant:
        return Instant(self._clock.monotonic_ms(), self._clock.now_ms())

    # Steps 3, 5 and 6: messages and notifications

    def _on_written(self, ready: Ready) -> None:
        self._track_candidacy(ready)
        self._send_all(ready, waiting=False)
        if ready.leader is not None:
            self._on_leader(ready.leader)
        if ready.high_watermark is not None:
            self._on_high_watermark(ready.high_watermark)
        self._core.written(ready)

    def _on_durable(self, ready: Ready) -> None:
        self._send_all(ready, waiting=True)
        for step in ready.imports:
            self._import(step)
        if not self._is_closed:
            self._core.persisted(ready, self._now())

    def _send_all(self, ready: Ready, *, waiting: bool) -> None:
        """Send the messages of a Ready that wait for its fsync, or the others."""
        for request in ready.requests:
            if waits_for_sync(request) == waiting:
                self._send(request)
        for response in ready.responses:
            if waits_for_sync(response) == waiting:
                self._responses.execute(response)

    def _send(self, send: SendRequest) -> None:
        def done(outcome: Response | SendFailure) -> None:
            if not self._is_closed:
                self._core.on_response(send.serial, outcome, self._now())
                self._schedule_advance()

        self._io.transport.send(send.to_id, send.to, send.request, send.timeout_ms, done)

    def _import(self, step: ImportStep) -> None:
        def done(outcome: ImportOutcome) -> None:
            if not self._is_closed:
                self._core.on_import(outcome, self._now())
                self._schedule_advance()

        assert self._io.imports is not None, "a core with an import timeout needs ReplicaIo.imports"
        self._io.imports.perform(step, done)

    def _on_leader(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id is not None and self._candidate_since_ms is not None:
            self.metrics.election.record(self._clock.monotonic_ms() - self._candidate_since_ms)
            self._candidate_since_ms = None
        if leader.leader_id != self.node_id:
            self._uncommitted.clear()
        self._leader = leader
        self._feeds.on_leader_change(leader)
        for watcher in self._leader_watchers:
            watcher(leader)

    def _track_candidacy(self, ready: Ready) -> None:
        state = ready.state
        is_candidate = state is not None and state.leader_id < 0 and state.voted_id == self.node_id
        if is_candidate and self._candidate_since_ms is None:
            self._candidate_since_ms = self._clock.monotonic_ms()

    def _on_high_watermark(self, offset: int) -> None:
        self._high_watermark = offset
        self._log.advance_high_watermark(offset)
        now_ms = self._clock.monotonic_ms()
        while self._uncommitted and self._uncommitted[0][0] < offset:
            self.metrics.commit.record(now_ms - self._uncommitted.popleft()[1])
        self._feeds.on_high_watermark(offset)
