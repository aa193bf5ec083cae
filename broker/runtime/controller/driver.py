"""Runs the controller on the quorum: one command after the other, answers when committed, images to whoever wants them.

A command is a plain function of the controller and the time. It is decided, appended and replayed without a pause, so
the next one sees its effect; its answer waits for the commit. When this node does not lead, the same object replays
what others committed, or loads it from a snapshot. Whatever goes wrong that no rule foresees costs the leadership, not
the answer's truth (Kafka's rule: UNKNOWN_SERVER_ERROR, renounce, begin again from the last committed state).

What happens to an own batch whose leader falls, in order: the quorum tells of the end of the leadership, which reverts
all that is not committed and fails the answers that wait for it; then of commits, and if the batch is among them after
all, it is replayed like anybody's.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from broker.clock import Clock
from broker.logs import EventLog
from broker.metadata.controller.controller import Controller, LocalBroker
from broker.metadata.controller.periodic_tasks import PeriodicTask
from broker.metadata.controller.result import CommandResult, ControllerResult, PartialResult
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.image_difference import difference
from broker.metadata.image.loader import Publication, RecordBatch
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage
from broker.metadata.image.records import VersionedRecord, decode_record, encode_record
from broker.metadata.image.slices import finish
from broker.metadata.snapshot.load import LoadedSnapshot, SnapshotLoad
from broker.quorum.identity import LeaderAndEpoch, SnapshotId
from broker.runtime.loop.collector_pauses import CollectorPauses
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.sliced_work import SlicedSteps, SlicedWork
from broker.runtime.loop.waiters import Loop
from broker.runtime.quorum.quorum import BatchTooLarge, CommittedBatch, NotLeader, Quorum, RawSnapshotReader
from broker.runtime.quorum.snapshot_loading import load_in_slices
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import HEADER_SIZE
from storage.errors import LogDirFailure

R = TypeVar("R")
Command = Callable[[Controller, int], CommandResult[R]]

LARGE_IMAGE_PARTITIONS: Final = 20_000
"""The delta that leads to so many from nothing takes some 20 ms to make."""
_RECORD_OVERHEAD: Final = 8  # bytes of a record in a batch beside its frame, give or take a few

_log: Final = EventLog("broker.controller")


class MetadataPublisher(Protocol):
    """Someone who follows the metadata."""

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """`image` is committed and `delta` led to it from the image before. Called on the loop, in order."""
        ...


class LogReadListener(Protocol):
    """Someone who counts what this node reads of the log. Called on the loop, before publishers are told."""

    def on_log_read(self, size_bytes: int) -> None:
        """So many bytes of committed records."""
        ...

    def on_delta(self, delta: MetadataDelta) -> None:
        """What they changed."""
        ...

    def on_snapshot_loaded(self, snapshot_id: SnapshotId, loaded: LoadedSnapshot, size: int, elapsed_ms: float) -> None:
        """A snapshot of `size` bytes took the place of all that was read before."""
        ...


class UnusableSnapshot(Exception):
    """A snapshot that is in place and cannot be loaded: this node has nothing to go on from."""


class _Waiting(NamedTuple):
    """An answer held back until the log is committed up to and with `offset`."""

    offset: int
    future: "asyncio.Future[Any]"
    response: object


class ControllerDriver:
    """The controller of this node, active or not, and the source of its metadata images.

    `local_broker` is the broker in this process, `bootstrap` what an empty log begins with. It must be added to the
    quorum as a listener. Committed records that do not replay raise out of `on_commit`, which ends the node.
    """

    def __init__(
        self,
        controller: Controller,
        quorum: Quorum,
        *,
        loop: Loop,
        clock: Clock,
        io: BlockingIo,
        bootstrap: Sequence[VersionedRecord],
        local_broker: LocalBroker | None,
        large_image_partitions: int = LARGE_IMAGE_PARTITIONS,
    ) -> None:
        self._large_image_partitions = large_image_partitions
        self._controller = controller
        self._quorum = quorum
        self._loop = loop
        self._clock = clock
        self._io = io
        self._bootstrap = bootstrap
        self._own_broker = local_broker
        self._publishers: list[MetadataPublisher] = []
        self._log_followers: list[LogReadListener] = []
        self._pauses = CollectorPauses()
        self._loading: asyncio.Future[LoadedSnapshot] | None = None
        self._published: MetadataImage | None = None
        self._introducing: asyncio.Future[MetadataDelta] | None = None
        self._after_first: deque[Publication] = deque()
        self._claimed_epoch = -1  # -1 while this node is not the active controller
        self._waiting: deque[_Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._activated = asyncio.Event()
        self._activation_watchers: list[Callable[[], None]] = []

    # Reading

    @property
    def is_active(self) -> bool:
        """Whether this node decides."""
        return self._claimed_epoch >= 0

    @property
    def leader(self) -> LeaderAndEpoch:
        return self._quorum.leader

    @property
    def leaderless_count(self) -> int:
        """Partitions without a leader."""
        return self._controller.leaderless_count

    @property
    def imbalanced_count(self) -> int:
        """Partitions that another than the preferred replica leads."""
        return self._controller.imbalanced_count

    @property
    def image(self) -> MetadataImage:
        """The latest committed image."""
        return self._controller.committed_image

    def add_publisher(self, publisher: MetadataPublisher) -> None:
        """Add a follower; one that comes late gets the whole image as its first delta."""
        if self._published is not None:
            publisher.on_metadata(_whole(self._published), self._published)
        self._publishers.append(publisher)

    def add_log_read_listener(self, follower: LogReadListener) -> None:
        """Before the driver is added to the quorum."""
        self._log_followers.append(follower)

    def watch_activation(self, watcher: Callable[[], None]) -> None:
        """Tell whenever this node has become the active controller and its first records are committed."""
        self._activation_watchers.append(watcher)

    async def wait_active(self) -> None:
        """Return once this node is the active controller and its first records are committed."""
        await self._activated.wait()

    # Commands

    def submit(self, command: Command[R]) -> "asyncio.Future[R]":
        """Decide and write at once; the future has the answer when what was written, or was pending, is committed.

        A command that gives portions goes on in later turns, and is answered when the last is committed.
        Raises KafkaError: the command's own, NOT_CONTROLLER while another leads, UNKNOWN_SERVER_ERROR for a failure
        nobody foresaw. The future fails with NOT_CONTROLLER if leadership is lost before the commit.
        """
        outcome = self._execute(command)
        future: asyncio.Future[R] = self._loop.create_future()
        self._follow(outcome, future)
        return future

    def _follow(self, outcome: CommandResult[R], future: "asyncio.Future[R] | None") -> None:
        """What was just written is everything, to be answered when it is committed; or there is a rest to it.

        Nobody waits for a job: it has no future.
        """
        if isinstance(outcome, PartialResult):
            self._loop.call_soon(partial(self._go_on, self._claimed_epoch, outcome.rest, future))
            return
        if future is None:
            return
        offset, committed = self._controller.last_offset, self._quorum.high_watermark
        if committed is None or offset >= committed:
            self._waiting.append(_Waiting(offset, future, outcome.response))
        elif not future.done():
            future.set_result(outcome.response)

    def _go_on(self, epoch: int, rest: Callable[[int], CommandResult[R]], future: "asyncio.Future[R] | None") -> None:
        """The rest of a command, whether anybody still waits for it or not. It ends with the leadership it began in."""
        try:
            if epoch != self._claimed_epoch:
                raise _not_controller()
            outcome = self._execute(lambda _controller, now_ms: rest(now_ms))
        except KafkaError as error:
            if future is not None and not future.done():
                future.set_exception(error)
        else:
            self._follow(outcome, future)

    def _execute(self, command: Command[R]) -> CommandResult[R]:
        """Decide, append, replay: no other command gets in between."""
        if not self.is_active:
            raise _not_controller()
        try:
            result = command(self._controller, self._now_ms())
            for records in result.batches():
                self._append(records)
        except KafkaError:
            raise
        except (NotLeader, LogDirFailure):  # a quorum whose disk failed tells its owner, who ends the node
            self._renounce()
            raise _not_controller() from None
        except Exception as error:
            _log.error("The controller failed and gives up leadership", error, epoch=self._claimed_epoch)
            self._quorum.resign(self._claimed_epoch)
            self._renounce()
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        self._rearm_timer()
        return result

    def _append(self, records: Sequence[VersionedRecord]) -> None:
        frames = [encode_record(*record) for record in records]
        try:
            appended = self._quorum.append(self._claimed_epoch, frames)
        except BatchTooLarge as error:  # which the request is to blame for, not this controller
            raise KafkaError(ErrorCode.POLICY_VIOLATION, str(error)) from error
        batch = RecordBatch(
            appended.base_offset,
            appended.last_offset,
            self._claimed_epoch,
            appended.timestamp_ms,
            [record.message for record in records],
        )
        self._controller.replay(batch, now_ms=self._now_ms())

    # The quorum's listener

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Publish what became certain: what this controller wrote, which it knows already, or what others wrote."""
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
            if not future.done():  # whoever asked may have gone
                future.set_result(response)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Become the active controller, or stop being it."""
        self._renounce()
        if leader.leader_id == self._quorum.node_id:
            self._claim(leader.epoch)

    def on_load_snapshot(self, snapshot_id: SnapshotId, reader: RawSnapshotReader) -> "asyncio.Future[None]":
        """Replace everything by a snapshot, in slices; publishers are then told what differs.

        The future fails with UnusableSnapshot, which ends the node.
        """
        assert not self.is_active, "a leader has everything that any snapshot has"
        done: asyncio.Future[None] = self._loop.create_future()
        began_ms, size, base = self._clock.monotonic_ms(), reader.size, self._controller.committed_image
        self._pauses.begin_load()
        load = SnapshotLoad(
            *snapshot_id,
            base,
            is_compared=self._published is not None or self._introducing is not None,
            is_indexed=self._controller.may_lead,
        )
        loading = load_in_slices(load, reader, loop=self._loop, clock=self._clock, io=self._io)
        self._loading = loading

        def proceed(_: object) -> None:
            if loading.cancelled():
                self._pauses.end_load(None)
                done.cancel()
                return
            try:
                self._take_loaded(snapshot_id, loading.result(), size, self._clock.monotonic_ms() - began_ms)
            except Exception as error:  # noqa: BLE001  whatever it is, there is no state to go on with
                failure = UnusableSnapshot(f"snapshot {snapshot_id.end_offset}-{snapshot_id.epoch}: {error}")
                failure.__cause__ = error
                self._pauses.end_load(None)
                done.set_exception(failure)
            else:
                done.set_result(None)

        loading.add_done_callback(proceed)
        return done

    def _take_loaded(self, snapshot_id: SnapshotId, loaded: LoadedSnapshot, size: int, elapsed_ms: float) -> None:
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
        """Stop deciding, for the node stops: whoever waits is told that another must answer."""
        self._renounce()
        for under_way in (self._loading, self._introducing):
            if under_way is not None:
                under_way.cancel()

    def _claim(self, epoch: int) -> None:
        _log.info("This node is the active controller", epoch=epoch)
        self._claimed_epoch = epoch
        try:
            activation = self.submit(self._activate)
        except KafkaError as error:  # the leadership is gone again, or was given up for what went wrong
            _log.warning("The active controller could not begin", epoch=epoch, error=str(error))
        else:
            activation.add_done_callback(self._on_activation_committed)

    def _activate(self, controller: Controller, now_ms: int) -> ControllerResult[None]:
        return controller.activate(self._bootstrap, local_broker=self._own_broker, now_ms=now_ms)

    def _on_activation_committed(self, future: "asyncio.Future[None]") -> None:
        if not future.cancelled() and future.exception() is None:
            self._activated.set()
            for watcher in self._activation_watchers:
                watcher()

    def _renounce(self) -> None:
        if not self.is_active:
            return
        _log.info("This node is not the active controller any more", epoch=self._claimed_epoch)
        self._claimed_epoch = -1
        self._activated.clear()
        self._controller.revert()
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.future.done():
                each.future.set_exception(_not_controller())

    # Publishing

    def _publish(self, publication: Publication) -> None:
        """The first image is published when it holds all that is committed, so that nobody acts on the past."""
        delta, image = publication
        for follower in self._log_followers:
            follower.on_delta(delta)
        if self._introducing is not None:
            self._after_first.append(publication)
        elif self._published is not None:
            self._tell(delta, image)
        elif self._is_up_to_date and not image.is_empty:
            if delta.image.is_empty:
                self._tell(delta, image)
            elif image.topics.partition_count < self._large_image_partitions:
                self._tell(_whole(image), image)
            else:
                self._introduce(image)

    @property
    def _is_up_to_date(self) -> bool:
        """Whether everything that is known to be committed was replayed."""
        high_watermark = self._quorum.high_watermark
        return high_watermark is not None and self._controller.last_offset + 1 >= high_watermark

    def _introduce(self, image: MetadataImage) -> None:
        """The first image is a large one: what publishers are told is put together in slices; the rest waits."""
        self._pauses.begin_load()
        work = SlicedWork(_steps_to(image), self._loop, self._clock, rests=False)
        self._introducing = work.done

        def introduced(done: "asyncio.Future[MetadataDelta]") -> None:
            self._introducing = None
            if not done.cancelled():
                self._tell(done.result(), image)
                while self._after_first:
                    self._tell(*self._after_first.popleft())
            self._pauses.end_load(None)

        self._introducing.add_done_callback(introduced)

    def _tell(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._published = image
        for publisher in list(self._publishers):
            publisher.on_metadata(delta, image)

    # The controller's own jobs

    def _rearm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self._controller.next_due_ms()
        if due_ms is not None and self.is_active:
            delay = max(0.0, due_ms - self._clock.monotonic_ms()) / 1000
            self._timer = self._loop.call_at(self._loop.time() + delay, self._run_periodic_tasks)

    def _run_periodic_tasks(self) -> None:
        for job in self._controller.due_tasks(self._now_ms()):
            try:
                self._follow(self._execute(partial(_run, job)), None)
            except KafkaError as error:
                _log.warning("A job of the controller did not run", error=str(error))
                break
        self._rearm_timer()

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_ms())


def _run(job: PeriodicTask, _controller: Controller, now_ms: int) -> CommandResult[None]:
    return job(now_ms)


def _decoded(batch: CommittedBatch) -> RecordBatch:
    """Raises DecodeError: a committed record that cannot be read ends the node."""
    records = [decode_record(frame) for frame in batch.frames]
    return RecordBatch(batch.base_offset, batch.last_offset, batch.epoch, batch.timestamp_ms, records)


def _steps_to(image: MetadataImage) -> SlicedSteps[MetadataDelta]:
    return (yield from difference(EMPTY_IMAGE, image))


def _whole(image: MetadataImage) -> MetadataDelta:
    """The delta that leads from nothing to an image."""
    return finish(difference(EMPTY_IMAGE, image))


def _size_of(batch: CommittedBatch) -> int:
    """About the bytes of a batch in the log."""
    return HEADER_SIZE + _RECORD_OVERHEAD * len(batch.frames) + sum(map(len, batch.frames))


def _not_controller() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER)
