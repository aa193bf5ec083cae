"""The driver of the controller on the quorum: executes commands, completes them after commit, and publishes images.

A command is a function of the controller and the time. The driver decides, appends and replays it without a pause, so
that the next command sees its effect; the response waits for the commit. While this node does not lead, the same
controller replays committed batches or loads a snapshot. An unexpected failure costs the leadership, as in Kafka:
UNKNOWN_SERVER_ERROR, resignation, and a restart from the last committed state.

When this node loses leadership with an uncommitted batch, the quorum first reports the leader change, which reverts all
uncommitted state and fails the waiting responses. If the batch is committed later after all, it arrives in `on_commit`
and is replayed like any other batch.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from broker.logs import EventLog
from broker.metadata.controller.controller import Controller, LocalBroker
from broker.metadata.controller.mutation_quota import MutationFigures
from broker.metadata.controller.periodic_tasks import PeriodicTask
from broker.metadata.controller.result import CommandResult, ControllerResult, PartialResult
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.image_difference import difference
from broker.metadata.image.loader import Publication, RecordBatch
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage
from broker.metadata.image.records import VersionedRecord, decode_record, encode_record
from broker.metadata.image.slices import finish
from broker.metadata.snapshot.load import LoadedSnapshot, SnapshotLoad
from broker.metrics.controller import ControllerMetrics
from broker.quorum.identity import LeaderAndEpoch, SnapshotId
from broker.runtime.loop.collector_pauses import CollectorPauses
from broker.runtime.loop.runtime import Runtime
from broker.runtime.loop.sliced_work import SlicedSteps, SlicedWork
from broker.runtime.quorum.quorum import BatchTooLarge, CommittedBatch, NotLeader, Quorum, RawSnapshotReader
from broker.runtime.quorum.snapshot_loading import load_in_slices
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from protocol.records.batch import HEADER_SIZE
from storage.errors import LogDirFailure

R = TypeVar("R")
Command = Callable[[Controller, int], CommandResult[R]]

LARGE_IMAGE_PARTITIONS: Final = 20_000
"""The size from which the first delta is built in slices: for as many partitions it takes some 20 ms."""
_RECORD_OVERHEAD: Final = 8  # approximate bytes of a record in a batch besides its frame

_UNCLAIMED: Final = LeaderEpoch(-1)

_log: Final = EventLog("broker.controller")


class MetadataPublisher(Protocol):
    """A consumer of metadata images."""

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Handle the committed `image`; `delta` leads to it from the previous image. Called on the loop, in order."""
        ...


class LogReadListener(Protocol):
    """An observer of the log that this node reads. Called on the loop, before publishers."""

    def on_log_read(self, size_bytes: int) -> None:
        """Count bytes of committed records."""
        ...

    def on_delta(self, delta: MetadataDelta) -> None:
        """Count the changes of the committed records."""
        ...

    def on_snapshot_loaded(self, snapshot_id: SnapshotId, loaded: LoadedSnapshot, size: int, elapsed_ms: float) -> None:
        """Restart counting: a snapshot of `size` bytes replaced all records read before."""
        ...


class UnusableSnapshot(Exception):
    """A stored snapshot that cannot be loaded. The node has no state to continue from and must stop."""


class _Waiting(NamedTuple):
    """A response that is held back until the log is committed up to and including `offset`."""

    offset: int
    future: "asyncio.Future[Any]"
    response: object


class ControllerDriver:
    """The controller of this node, active or not, and the source of its metadata images.

    `local_broker` is the broker in this process; `bootstrap` holds the first records of an empty log. Add the driver to
    the quorum as a listener. An error while replaying committed records propagates out of `on_commit` and ends the
    node.
    """

    def __init__(
        self,
        controller: Controller,
        quorum: Quorum,
        runtime: Runtime,
        *,
        bootstrap: Sequence[VersionedRecord],
        local_broker: LocalBroker | None,
        large_image_partitions: int = LARGE_IMAGE_PARTITIONS,
    ) -> None:
        self._large_image_partitions = large_image_partitions
        self._controller = controller
        self._quorum = quorum
        self._runtime = runtime
        self._loop = runtime.loop
        self._clock = runtime.clock
        self._io = runtime.io
        self.metrics = ControllerMetrics(rotated_ms=runtime.clock.monotonic_ms())
        self._bootstrap = bootstrap
        self._own_broker = local_broker
        self._publishers: list[MetadataPublisher] = []
        self._log_followers: list[LogReadListener] = []
        self._pauses = CollectorPauses()
        self._loading: asyncio.Future[LoadedSnapshot] | None = None
        self._published: MetadataImage | None = None
        self._first_publication: asyncio.Future[MetadataDelta] | None = None
        self._after_first: deque[Publication] = deque()
        self._claimed_epoch = _UNCLAIMED  # while this node is not the active controller
        self._waiting: deque[_Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._activation_watchers: list[Callable[[], None]] = []

    # State

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller."""
        return self._claimed_epoch >= 0

    @property
    def leader(self) -> LeaderAndEpoch:
        return self._quorum.leader

    @property
    def leaderless_count(self) -> int:
        """The number of partitions without a leader."""
        return self._controller.leaderless_count

    @property
    def imbalanced_count(self) -> int:
        """The number of partitions that are not led by their preferred replica."""
        return self._controller.imbalanced_count

    @property
    def image(self) -> MetadataImage:
        """The latest committed image."""
        return self._controller.committed_image

    def add_publisher(self, publisher: MetadataPublisher) -> None:
        """Add a publisher. A late publisher receives the whole image as its first delta."""
        if self._published is not None:
            publisher.on_metadata(_whole(self._published), self._published)
        self._publishers.append(publisher)

    def add_log_read_listener(self, follower: LogReadListener) -> None:
        """Add a listener; call before the driver is added to the quorum."""
        self._log_followers.append(follower)

    def watch_activation(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` whenever this node has become the active controller and its first records are committed."""
        self._activation_watchers.append(watcher)

    # Commands

    def submit(self, command: Command[R]) -> "asyncio.Future[R]":
        """Decide and append at once; complete the future with the response when all written and pending records are
        committed.

        A command that returns a PartialResult continues in later turns and completes after its last part. Raises
        KafkaError: the command's own, NOT_CONTROLLER on an inactive controller, UNKNOWN_SERVER_ERROR for an unexpected
        failure. The future fails with NOT_CONTROLLER if leadership is lost before the commit.
        """
        outcome = self._execute(command)
        future: asyncio.Future[R] = self._loop.create_future()
        self._complete_after_commit(outcome, future)
        return future

    def _complete_after_commit(self, outcome: CommandResult[R], future: "asyncio.Future[R] | None") -> None:
        """Complete the future after commit, or schedule the next part of the command.

        `future` is None for a periodic task.
        """
        if isinstance(outcome, PartialResult):
            now_ms = self._clock.monotonic_ms()
            self._loop.call_soon(partial(self._continue, self._claimed_epoch, outcome.rest, future, now_ms))
            return
        if future is None:
            return
        offset, committed = self._controller.last_offset, self._quorum.high_watermark
        if committed is None or offset >= committed:
            self._waiting.append(_Waiting(offset, future, outcome.response))
        elif not future.done():
            future.set_result(outcome.response)

    def _continue(
        self,
        epoch: LeaderEpoch,
        rest: Callable[[int], CommandResult[R]],
        future: "asyncio.Future[R] | None",
        due_ms: float,
    ) -> None:
        """Execute the next part of a command, even if its caller is gone. Fails once the leadership has changed."""
        self._record_wait(due_ms)
        try:
            if epoch != self._claimed_epoch:
                raise _not_controller()
            outcome = self._execute(lambda _controller, now_ms: rest(now_ms))
        except KafkaError as error:
            if future is not None and not future.done():
                future.set_exception(error)
        else:
            self._complete_after_commit(outcome, future)

    def _execute(self, command: Command[R]) -> CommandResult[R]:
        """Decide, append and replay without another command in between."""
        if not self.is_active:
            raise _not_controller()
        began_ms = self._clock.monotonic_ms()
        self.metrics.rotate(began_ms)
        try:
            result = command(self._controller, int(began_ms))
            for records in result.batches():
                self._append(records)
        except KafkaError:
            raise
        except (NotLeader, LogDirFailure):  # after a disk failure the quorum notifies its owner, which ends the node
            self._renounce()
            raise _not_controller() from None
        except Exception as error:
            _log.error("The controller failed and resigns", error, epoch=self._claimed_epoch)
            self.metrics.metadata_errors += 1
            self._quorum.resign(self._claimed_epoch)
            self._renounce()
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        finally:
            self.metrics.processing_us.record(round(1000 * (self._clock.monotonic_ms() - began_ms)))
        self._rearm_timer()
        return result

    def _record_wait(self, due_ms: float) -> None:
        self.metrics.queue_us.record(round(1000 * (self._clock.monotonic_ms() - due_ms)))

    def _append(self, records: Sequence[VersionedRecord]) -> None:
        frames = [encode_record(*record) for record in records]
        try:
            appended = self._quorum.append(self._claimed_epoch, frames)
        except BatchTooLarge as error:  # caused by the request, not by the controller
            raise KafkaError(ErrorCode.POLICY_VIOLATION, str(error)) from error
        batch = RecordBatch(
            appended.base_offset,
            appended.last_offset,
            self._claimed_epoch,
            appended.timestamp_ms,
            [record.message for record in records],
        )
        self._controller.replay(batch, now_ms=self._now_ms())

    # Quorum listener

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Publish committed batches: the controller's own, which are replayed already, and those of other leaders."""
        if not batches:
            return
        size_bytes = sum(_size_of(batch) for batch in batches)
        for follower in self._log_followers:
            follower.on_log_read(size_bytes)
        end = batches[-1].last_offset
        for publication in self._controller.commit(end):
            self._publish(publication)
        foreign = [batch for batch in batches if batch.base_offset > self._controller.last_offset]
        if foreign:
            self._publish(self._controller.load([_decoded(batch) for batch in foreign]))
        self._pauses.on_image(self.image)
        while self._waiting and self._waiting[0].offset <= end:
            _, future, response = self._waiting.popleft()
            if not future.done():  # the caller may have cancelled
                future.set_result(response)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Become the active controller, or stop being it."""
        self._renounce()
        if leader.leader_id == self._quorum.node_id:
            self._claim(leader.epoch)

    def on_load_snapshot(self, snapshot_id: SnapshotId, reader: RawSnapshotReader) -> "asyncio.Future[None]":
        """Replace the state by a snapshot, in slices, and publish the difference.

        The future fails with UnusableSnapshot, which ends the node.
        """
        assert not self.is_active, "a leader never loads a snapshot: its log contains all snapshots"
        done: asyncio.Future[None] = self._loop.create_future()
        began_ms, size, base = self._clock.monotonic_ms(), reader.size, self._controller.committed_image
        self._pauses.begin_load()
        load = SnapshotLoad(
            *snapshot_id,
            base,
            is_compared=self._published is not None or self._first_publication is not None,
            is_indexed=self._controller.may_lead,
        )
        loading = load_in_slices(load, reader, self._runtime)
        self._loading = loading

        def proceed(_: object) -> None:
            if loading.cancelled():
                self._pauses.end_load(None)
                done.cancel()
                return
            try:
                self._install_snapshot(snapshot_id, loading.result(), size, self._clock.monotonic_ms() - began_ms)
            except Exception as error:  # noqa: BLE001  without a loaded state the node cannot continue
                failure = UnusableSnapshot(f"snapshot {snapshot_id.end_offset}-{snapshot_id.epoch}: {error}")
                failure.__cause__ = error
                self._pauses.end_load(None)
                self.metrics.metadata_errors += 1
                done.set_exception(failure)
            else:
                done.set_result(None)

        loading.add_done_callback(proceed)
        return done

    def _install_snapshot(self, snapshot_id: SnapshotId, loaded: LoadedSnapshot, size: int, elapsed_ms: float) -> None:
        _log.info(
            "Loaded a metadata snapshot",
            end_offset=snapshot_id.end_offset,
            epoch=snapshot_id.epoch,
            size=size,
            elapsed_ms=round(elapsed_ms),
        )
        publication = self._controller.load_snapshot(loaded)
        self._pauses.end_load(loaded.image)
        for follower in self._log_followers:
            follower.on_snapshot_loaded(snapshot_id, loaded, size, elapsed_ms)
        self._publish(publication)

    def close(self) -> None:
        """Stop deciding because the node stops; waiting callers receive NOT_CONTROLLER."""
        self._renounce()
        for under_way in (self._loading, self._first_publication):
            if under_way is not None:
                under_way.cancel()

    def _claim(self, epoch: LeaderEpoch) -> None:
        _log.info("This node is the active controller", epoch=epoch)
        self._claimed_epoch = epoch
        self.metrics.new_active_controllers += 1
        try:
            activation = self.submit(self._activate)
        except KafkaError as error:  # leadership is lost already, or was resigned after a failure
            _log.warning("The active controller could not write its first records", epoch=epoch, error=str(error))
        else:
            activation.add_done_callback(self._on_activation_committed)

    def _activate(self, controller: Controller, now_ms: int) -> ControllerResult[None]:
        return controller.activate(self._bootstrap, local_broker=self._own_broker, now_ms=now_ms)

    def _on_activation_committed(self, future: "asyncio.Future[None]") -> None:
        if not future.cancelled() and future.exception() is None:
            for watcher in self._activation_watchers:
                watcher()

    def _renounce(self) -> None:
        if not self.is_active:
            return
        _log.info("This node is not the active controller any more", epoch=self._claimed_epoch)
        self._claimed_epoch = _UNCLAIMED
        self._controller.revert()
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.future.done():
                each.future.set_exception(_not_controller())

    # Publishing

    def _publish(self, publication: Publication) -> None:
        """Publish an image.

        The first is published once it contains all committed records, so that it is never stale.
        """
        delta, image = publication
        for follower in self._log_followers:
            follower.on_delta(delta)
        if self._first_publication is not None:
            self._after_first.append(publication)
        elif self._published is not None:
            self._notify(delta, image)
        elif self._is_up_to_date and not image.is_empty:
            if delta.image.is_empty and not delta.is_empty:  # the delta of the first snapshot is not computed
                self._notify(delta, image)
            elif image.topics.partition_count < self._large_image_partitions:
                self._notify(_whole(image), image)
            else:
                self._publish_first(image)

    @property
    def _is_up_to_date(self) -> bool:
        """Whether all records known to be committed are replayed."""
        high_watermark = self._quorum.high_watermark
        return high_watermark is not None and self._controller.last_offset + 1 >= high_watermark

    def _publish_first(self, image: MetadataImage) -> None:
        """Publish a large first image: build its delta in slices and queue later publications."""
        self._pauses.begin_load()
        work = SlicedWork(_steps_to(image), self._loop, self._clock, pauses=False)
        self._first_publication = work.done

        def published(done: "asyncio.Future[MetadataDelta]") -> None:
            self._first_publication = None
            if not done.cancelled():
                self._notify(done.result(), image)
                while self._after_first:
                    self._notify(*self._after_first.popleft())
            self._pauses.end_load(None)

        self._first_publication.add_done_callback(published)

    def _notify(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._published = image
        for publisher in list(self._publishers):
            publisher.on_metadata(delta, image)

    # Periodic tasks

    def _rearm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self._controller.next_due_ms()
        if due_ms is not None and self.is_active:
            delay = max(0.0, due_ms - self._clock.monotonic_ms()) / 1000
            self._timer = self._loop.call_at(self._loop.time() + delay, partial(self._run_periodic_tasks, due_ms))

    def _run_periodic_tasks(self, due_ms: float) -> None:
        self._record_wait(due_ms)
        for job in self._controller.due_tasks(self._now_ms()):
            try:
                self._complete_after_commit(self._execute(partial(_run, job)), None)
            except KafkaError as error:
                _log.warning("A periodic task of the controller failed", error=str(error))
                break
        self._rearm_timer()

    def mutation_figures(self, now_ms: int, limit: int) -> Iterable[MutationFigures]:
        """Yield the `limit` mutation quotas that clients used last; none if another controller is active."""
        return self._controller.mutation_figures(now_ms, limit) if self.is_active else ()

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_ms())


def _run(job: PeriodicTask, _controller: Controller, now_ms: int) -> CommandResult[None]:
    return job(now_ms)


def _decoded(batch: CommittedBatch) -> RecordBatch:
    """Return a committed batch with decoded records. Raises DecodeError, which ends the node."""
    records = [decode_record(frame) for frame in batch.frames]
    return RecordBatch(batch.base_offset, batch.last_offset, batch.epoch, batch.timestamp_ms, records)


def _steps_to(image: MetadataImage) -> SlicedSteps[MetadataDelta]:
    return (yield from difference(EMPTY_IMAGE, image))


def _whole(image: MetadataImage) -> MetadataDelta:
    """Return the delta from the empty image to an image."""
    return finish(difference(EMPTY_IMAGE, image))


def _size_of(batch: CommittedBatch) -> int:
    """Return the approximate size of a batch in the log, in bytes."""
    return HEADER_SIZE + _RECORD_OVERHEAD * len(batch.frames) + sum(map(len, batch.frames))


def _not_controller() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER)
