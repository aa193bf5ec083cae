"""Runs the quorum's pure core on a disk, a network and an event loop.

Theory. Whatever happens (a request, an answer, a timer, an append) is fed to the core at once and changes only memory.
In a turn of the loop of its own, so that nothing is told within the call that caused it, the driver takes what follows:
a `Ready`, done in six steps in the order that `broker/quorum/ready.py` states. One is under way at a time; while its
fsync runs, whatever is fed gathers for the next, so one fsync serves everything that came meanwhile.

Threads. Batches are appended on the loop: into the page cache, which is where readers on the loop find them. What waits
for a disk (election state, fsync, truncation, pages of snapshots) runs on the IO thread. The log belongs to one thread
at a time, so while it is cut there, nobody reads it here.

An error of the disk, or of a listener, ends the replica: `on_fatal` is told once, and nothing is done any more.
"""

from asyncio import Future, TimerHandle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

from broker.clock import Clock
from broker.metrics.quorum import QuorumFigures
from broker.quorum.control_history import Control
from broker.quorum.core import Appended, NotLeader, QuorumCore, QuorumDescription
from broker.quorum.identity import NO_NODE, Instant, LeaderAndEpoch, SnapshotId, SocketAddress
from broker.quorum.messages import (
    UNKNOWN_OFFSET,
    FetchResponse,
    FetchSnapshotResponse,
    Request,
    Response,
    SendFailure,
)
from broker.quorum.ready import (
    Answer,
    Append,
    ElectionState,
    FinishPart,
    LogOperation,
    Ready,
    SendRequest,
    StartAt,
    Trim,
    TruncateTo,
)
from broker.quorum.settings import StoredSnapshot
from broker.quorum.snapshots.imports import ImportOutcome, ImportStep
from broker.runtime.loop.append_slices import sliced
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.waiters import Loop
from broker.runtime.quorum.listener_feeds import ListenerFeeds
from broker.runtime.quorum.metadata_log import FetchedSnapshot, RaftMetadataLog, RawSnapshotWriter, SnapshotNotFound
from broker.runtime.quorum.metrics import QuorumMetrics
from broker.runtime.quorum.quorum import CommittedBatch, QuorumListener
from protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")
Done: TypeAlias = Callable[[Response | SendFailure], None]

SHUT_DOWN_TIMEOUT_MS: Final = 2_000
"""An election among those who stay takes less, and if they need the vote of who leaves, they cannot go on anyway."""
_CUTS_LOG: Final = (TruncateTo, StartAt)
_LEAVES_GARBAGE: Final = (StartAt, Trim)
"""Their files go with the next fsync, also on a node that needs none for anything else."""


class QuorumTransport(Protocol):
    """Takes requests to other replicas."""

    def send(
        self,
        to_id: int,
        to: SocketAddress,
        request: Request,
        timeout_ms: int,
        done: Callable[[Response | SendFailure], None],
    ) -> None:
        """Calls `done` exactly once, later, on the loop. `to_id` is negative for a node whose id nobody knows."""
        ...


class SnapshotImports(Protocol):
    """Brings snapshots out of a store."""

    def perform(self, step: ImportStep, done: Callable[[ImportOutcome], None]) -> None:
        """Begin it; calls `done` on the loop, at most once."""
        ...

    def on_adopted(self, snapshot_id: SnapshotId, *, is_whole: bool) -> None:
        """What was brought is in place now, or was no good."""
        ...


class StateFile(Protocol):
    """Where the election state is kept."""

    def write(self, state: ElectionState) -> None:
        """Durable on return; blocks."""
        ...


class _Work:
    """How far a Ready is. Nothing may leave before what it depends on is on the disk."""

    __slots__ = ("is_state_written", "is_synced", "operations_done", "ready", "slices")

    def __init__(self, ready: Ready) -> None:
        self.ready = ready
        self.is_state_written = ready.state is None
        self.operations_done = 0
        self.slices: Iterator[Append] | None = None
        self.is_synced = not ready.must_sync and not any(isinstance(each, _LEAVES_GARBAGE) for each in ready.log)

    def check_log_may_change(self) -> None:
        assert self.is_state_written, "the log must not change before the election state is on the disk"

    def check_may_leave(self) -> None:
        assert self.is_state_written, "nothing leaves before the election state is on the disk"
        assert self.operations_done == len(self.ready.log), "nothing leaves before the log is as it must be"
        assert self.is_synced, "nothing leaves before the log is on the disk"


class QuorumDriver:
    """A replica of the metadata log: implements `Quorum`, and answers what other replicas ask.

    `start` begins; everything is called on the event loop. The log stays its owner's to close.
    """

    def __init__(
        self,
        core: QuorumCore,
        log: RaftMetadataLog,
        state_file: StateFile,
        transport: QuorumTransport,
        *,
        node_id: int,
        clock: Clock,
        loop: Loop,
        io: BlockingIo,
        on_fatal: Callable[[BaseException], None],
        election: ElectionState | None = None,
        imports: SnapshotImports | None = None,
    ) -> None:
        """`election` is what the state file held; `core` was made from it. A core that imports needs `imports`."""
        self._core = core
        self._log = log
        self._state_file = state_file
        self._transport = transport
        self._node_id = node_id
        self._clock = clock
        self._loop = loop
        self._io = io
        self._on_fatal = on_fatal
        self._imports = imports
        self.metrics = QuorumMetrics()
        self.election = election
        """As it is on the disk; None before the first."""
        snapshots = log.recovered.snapshots
        self._feeds = ListenerFeeds(
            log,
            node_id=node_id,
            loop=loop,
            io=io,
            newest_snapshot=snapshots[-1].id if snapshots else None,
            on_failure=self._fail,
        )
        self._work: _Work | None = None
        self._is_cutting = False
        self._is_turn_due = False
        self._is_closed = False
        self._leader = LeaderAndEpoch(None, core.epoch)
        self._high_watermark: int | None = None
        self._tokens = 0
        self._answers: dict[int, Future[Response]] = {}
        self._leader_watchers: list[Callable[[LeaderAndEpoch], object]] = []
        self._timer: TimerHandle | None = None
        self._timer_deadline_ms = 0.0
        self._uncommitted: deque[tuple[int, float]] = deque()  # (last offset, appended at) of own batches
        self._stands_since_ms: float | None = None
        self._shut_down: Future[None] | None = None

    # Reading

    @property
    def node_id(self) -> int:
        return self._node_id

    @property
    def leader(self) -> LeaderAndEpoch:
        """As the disk knows it: a node that leads in memory alone may still come to lead in that epoch again."""
        return self._leader

    @property
    def high_watermark(self) -> int | None:
        """As listeners were told."""
        return self._high_watermark

    @property
    def log_end_offset(self) -> int:
        return self._core.log_end_offset

    @property
    def log_start_offset(self) -> int:
        return self._core.log_start_offset

    @property
    def core(self) -> QuorumCore:
        """To look at, never to feed."""
        return self._core

    @property
    def log(self) -> RaftMetadataLog:
        """To read, unless `is_log_away`."""
        return self._log

    @property
    def is_log_away(self) -> bool:
        """Whether another thread is cutting the log at the moment, so that nobody may read it here."""
        return self._is_cutting

    def describe(self) -> QuorumDescription:
        """What DescribeQuorum tells."""
        return self._core.describe(self._now())

    def figures(self) -> QuorumFigures:
        """What metrics show."""
        described, election = self.describe(), self.election or ElectionState()
        leads = described.error is ErrorCode.NONE
        return QuorumFigures(
            self._core.role,
            NO_NODE if self._leader.leader_id is None else self._leader.leader_id,
            self._core.epoch,
            election.voted_id,
            UNKNOWN_OFFSET if self._high_watermark is None else self._high_watermark,
            self._log.log_end_offset,
            self._core.log_end_epoch,
            self._core.ignores_static_voters,
            len(described.voters) if leads else -1,
            len(described.observers) if leads else -1,
            self._core.is_changing_voters,
        )

    # Using

    def start(self) -> None:
        """Take part."""
        self._core.tick(self._now())
        self._wake()

    def append(self, epoch: int, frames: Sequence[bytes]) -> Appended:
        """See `Quorum.append`."""
        if self._leader != LeaderAndEpoch(self._node_id, epoch):
            raise NotLeader(f"node {self._node_id} does not lead in epoch {epoch}")
        now = self._now()
        appended = self._core.append(epoch, frames, now)
        self._feeds.remember(CommittedBatch(*appended[:2], epoch, appended.timestamp_ms, frames))
        self._uncommitted.append((appended.last_offset, now.monotonic_ms))
        self.metrics.appended_records += len(frames)
        self._wake()
        return appended

    def add_listener(self, listener: QuorumListener) -> None:
        """Tell a listener everything, soon."""
        self._feeds.add(listener)

    def watch_leader(self, watcher: Callable[[LeaderAndEpoch], object]) -> None:
        """Tell of every change of the leader as soon as it is known; listeners are told in step with the log."""
        self._leader_watchers.append(watcher)

    def resign(self, epoch: int) -> None:
        """Give up leadership of an epoch; no effect if it is over."""
        self._core.resign(epoch, self._now())
        self._wake()

    def handle(self, request: Request) -> "Future[Response]":
        """Answer another replica. The future fails with BROKER_NOT_AVAILABLE if this one stops first."""
        token, future = self._new_answer()
        if not self._is_closed:
            self._core.on_request(token, request, self._now())
            self._wake()
        return future

    def upgrade_kraft_version(self, version: int) -> "Future[Response]":
        """From static to dynamic voters (KAFKA-16538); ends with a ChangeVotersResponse."""
        token, future = self._new_answer()
        if not self._is_closed:
            self._core.upgrade_kraft_version(token, version, self._now())
            self._wake()
        return future

    def _new_answer(self) -> "tuple[int, Future[Response]]":
        future: Future[Response] = self._loop.create_future()
        self._tokens += 1
        if self._is_closed:
            future.set_exception(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))
        else:
            self._answers[self._tokens] = future
        return self._tokens, future

    # Snapshots made here

    def can_snapshot_at(self, end_offset: int) -> SnapshotId | None:
        """The id of a snapshot that ends there; None if there cannot be one, or is one already."""
        return self._core.can_snapshot_at(end_offset)

    def control_before(self, end_offset: int) -> Control:
        """kraft.version and voters that a snapshot which ends there must state."""
        return self._core.control_before(end_offset)

    def begin_snapshot(self, snapshot_id: SnapshotId) -> RawSnapshotWriter:
        """Its writer; whoever commits it calls `on_snapshot_generated`. Blocks for the creation of a file."""
        return self._log.begin_snapshot(snapshot_id)

    def on_snapshot_generated(self, snapshot: StoredSnapshot) -> None:
        """A snapshot is in place, durably."""
        if not self._is_closed:
            self._note_snapshot(snapshot.id)
            self._core.on_snapshot_generated(snapshot, self._now())
            self._wake()

    def _note_snapshot(self, snapshot_id: SnapshotId) -> None:
        newest = self._feeds.newest_snapshot
        if newest is None or snapshot_id.position > newest.position:
            self._feeds.newest_snapshot = snapshot_id

    # Ending

    def shut_down(self, timeout_ms: int = SHUT_DOWN_TIMEOUT_MS) -> "Future[None]":
        """Leave in order: a leader hands over. Done when it has, or the time is over; `close` it then."""
        if self._shut_down is None:
            self._shut_down = self._loop.create_future()
            self._core.shut_down(self._now())
            self._loop.call_at(self._loop.time() + timeout_ms / 1000, self._settle_shut_down)
            self._wake()
        return self._shut_down

    def close(self) -> None:
        """Do and tell nothing any more; whoever waits for an answer is told so."""
        if self._is_closed:
            return
        self._is_closed = True
        self._leader = LeaderAndEpoch(None, self._leader.epoch)
        self._feeds.close()
        if self._timer is not None:
            self._timer.cancel()
        answers, self._answers = self._answers, {}
        for future in answers.values():
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))
        self._settle_shut_down()

    def _settle_shut_down(self) -> None:
        if self._shut_down is not None and not self._shut_down.done():
            self._shut_down.set_result(None)

    def _fail(self, error: BaseException) -> None:
        if not self._is_closed:
            self.close()
            self._on_fatal(error)

    # Turns

    def _wake(self) -> None:
        if not self._is_turn_due and not self._is_closed:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        self._guarded(self._go_on)

    def _go_on(self) -> None:
        """Begin what there is to do, unless something is under way."""
        while self._work is None and not self._is_closed:
            ready = self._core.take_ready()
            if ready is None:
                break
            self._begin(_Work(ready))
        if not self._is_closed:
            self._set_timer()
            if self._shut_down is not None and self._core.is_shut_down:
                self._settle_shut_down()

    def _guarded(self, action: Callable[[], None]) -> None:
        """What fails here cannot be done twice, nor passed over."""
        if self._is_closed:
            return
        try:
            action()
        except Exception as error:  # noqa: BLE001  whatever it is, nobody may rely on what would have followed
            self._fail(error)

    def _blocking(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Run `work` off the loop, then `then` on it, and go on with what that makes possible."""

        def proceed(done: "Future[T]") -> None:
            if not done.cancelled():
                self._guarded(lambda: finish(done.result()))

        def finish(result: T) -> None:
            then(result)
            self._go_on()

        self._io.submit(work).add_done_callback(proceed)

    def _set_timer(self) -> None:
        """Moments mostly move away before they come, so a timer that rings too early is cheaper than a new one."""
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
        self._guarded(self._ring)

    def _ring(self) -> None:
        now, deadline = self._now(), self._core.next_deadline_ms
        if deadline is not None and deadline <= now.monotonic_ms:
            self._core.tick(now)
        self._go_on()

    def _now(self) -> Instant:
        return Instant(self._clock.monotonic_ms(), self._clock.now_ms())

    # Step 1: the election state

    def _begin(self, work: _Work) -> None:
        self._work = work
        state = work.ready.state
        if state is None:
            self._operate(work)
        else:
            self._blocking(partial(self._state_file.write, state), lambda _: self._on_state_written(work, state))

    def _on_state_written(self, work: _Work, state: ElectionState) -> None:
        self.election = state
        work.is_state_written = True
        self._operate(work)

    # Step 2: the log

    def _operate(self, work: _Work) -> None:
        work.check_log_may_change()
        operations = work.ready.log
        while work.operations_done < len(operations):
            operation = operations[work.operations_done]
            if isinstance(operation, Append):
                if not self._append_some(work, operation):
                    return
            elif isinstance(operation, Trim):
                self._log.perform(operation, self._clock.now_ms())
            else:
                self._operate_blocking(work, operation)
                return
            work.operations_done += 1
        self._sync(work)

    def _append_some(self, work: _Work, append: Append) -> bool:
        """Append what the loop has time for; whether that was all. What is left is for its next turn."""
        if work.slices is None:
            if self._core.leader.leader_id != self._node_id:
                self.metrics.fetched_records += append.end_offset - self._log.log_end_offset
            work.slices = sliced(append)
        piece = next(work.slices)
        self._log.perform(piece, self._clock.now_ms())
        if piece.end_offset < append.end_offset:
            self._loop.call_soon(lambda: self._guarded(lambda: self._append_on(work)))
            return False
        work.slices = None
        return True

    def _append_on(self, work: _Work) -> None:
        self._operate(work)
        self._go_on()

    def _operate_blocking(self, work: _Work, operation: LogOperation) -> None:
        if isinstance(operation, _CUTS_LOG):
            self._is_cutting = True
            self._feeds.pause()
        work_on_disk = partial(self._log.perform, operation, self._clock.now_ms())
        self._blocking(work_on_disk, lambda outcome: self._on_operated(work, operation, outcome))

    def _on_operated(self, work: _Work, operation: LogOperation, outcome: FetchedSnapshot | None) -> None:
        work.operations_done += 1
        if isinstance(operation, FinishPart):
            stored, control = (None, ()) if outcome is None else outcome
            self._note_received(operation, is_whole=stored is not None)
            self._core.on_snapshot_fetched(operation.snapshot_id, stored, control, self._now())
        elif isinstance(operation, _CUTS_LOG):
            self._is_cutting = False
            if isinstance(operation, StartAt):
                self._feeds.newest_snapshot = operation.snapshot_id
            self._feeds.resume()
        self._operate(work)

    def _note_received(self, part: FinishPart, *, is_whole: bool) -> None:
        self.metrics.imported_snapshots += is_whole and part.is_imported
        self.metrics.fetched_snapshots += is_whole and not part.is_imported
        if part.is_imported and self._imports is not None:
            self._imports.on_adopted(part.snapshot_id, is_whole=is_whole)

    # Step 3: the fsync

    def _sync(self, work: _Work) -> None:
        if work.is_synced:
            self._leave(work)
        else:
            self._blocking(self._log.sync, lambda _: self._on_synced(work))

    def _on_synced(self, work: _Work) -> None:
        work.is_synced = True
        self._leave(work)

    # Steps 4 to 6: what others see

    def _leave(self, work: _Work) -> None:
        work.check_may_leave()
        ready = work.ready
        self._note_candidacy(ready)
        for send in ready.sends:
            self._send(send)
        for answer in ready.answers:
            self._answer(answer)
        for step in ready.imports:
            self._import(step)
        if ready.leader is not None:
            self._on_leader(ready.leader)
        if ready.high_watermark is not None:
            self._on_high_watermark(ready.high_watermark)
        if not self._is_closed:
            self._core.persisted(ready, self._now())
            self._work = None

    def _send(self, send: SendRequest) -> None:
        def done(outcome: Response | SendFailure) -> None:
            if not self._is_closed:
                self._core.on_response(send.serial, outcome, self._now())
                self._wake()

        self._transport.send(send.to_id, send.to, send.request, send.timeout_ms, done)

    def _import(self, step: ImportStep) -> None:
        def done(outcome: ImportOutcome) -> None:
            if not self._is_closed:
                self._core.on_import(outcome, self._now())
                self._wake()

        assert self._imports is not None, "a core that imports needs somebody who does"
        self._imports.perform(step, done)

    def _on_leader(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id is not None and self._stands_since_ms is not None:
            self.metrics.election.record(self._clock.monotonic_ms() - self._stands_since_ms)
            self._stands_since_ms = None
        if leader.leader_id != self._node_id:
            self._uncommitted.clear()
        self._leader = leader
        self._feeds.on_leader_change(leader)
        for watcher in self._leader_watchers:
            watcher(leader)

    def _note_candidacy(self, ready: Ready) -> None:
        state = ready.state
        stands = state is not None and state.leader_id < 0 and state.voted_id == self._node_id
        if stands and self._stands_since_ms is None:
            self._stands_since_ms = self._clock.monotonic_ms()

    def _on_high_watermark(self, offset: int) -> None:
        self._high_watermark = offset
        self._log.advance_high_watermark(offset)
        now_ms = self._clock.monotonic_ms()
        while self._uncommitted and self._uncommitted[0][0] < offset:
            self.metrics.commit.record(now_ms - self._uncommitted.popleft()[1])
        self._feeds.on_high_watermark(offset)

    # Answers

    def _answer(self, answer: Answer) -> None:
        future = self._answers.pop(answer.token, None)
        if future is None or future.done():  # whoever asked has gone
            return
        response = answer.response
        if isinstance(response, FetchResponse) and response.read_from != UNKNOWN_OFFSET:
            self._answer_with_records(future, response)
        elif isinstance(response, FetchSnapshotResponse) and response.max_bytes > 0:
            self._answer_with_page(future, response)
        else:
            future.set_result(response)

    def _answer_with_records(self, future: "Future[Response]", response: FetchResponse) -> None:
        """Records stay where they are: views remain valid although the log is cut (`storage.files`)."""
        found = self._log.read(response.read_from, response.max_bytes, self._log.log_end_offset)
        filled = replace(response, records=found.data)
        if found.cold:
            self._blocking(partial(self._log.warm, found), lambda _: _settle(future, filled))
        else:
            future.set_result(filled)

    def _answer_with_page(self, future: "Future[Response]", response: FetchSnapshotResponse) -> None:
        self._blocking(partial(self._read_page, response), lambda filled: _settle(future, filled))

    def _read_page(self, response: FetchSnapshotResponse) -> FetchSnapshotResponse:
        """On the IO thread."""
        try:
            data = self._log.read_snapshot_page(response.snapshot_id, response.position, response.max_bytes)
        except SnapshotNotFound:  # trimmed since the core answered
            return FetchSnapshotResponse(ErrorCode.SNAPSHOT_NOT_FOUND, response.leader)
        return replace(response, data=data)


def _settle(future: "Future[Response]", response: Response) -> None:
    if not future.done():
        future.set_result(response)
