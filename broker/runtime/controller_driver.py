"""Runs the controller on the quorum: one command after the other, answers when committed, images to whoever wants them.

A command is a plain function of the controller and the time. It is decided, appended and replayed without a pause, so
the next one sees its effect; its answer waits for the commit. When this node does not lead, the same object replays
what others committed. Whatever goes wrong that no rule foresees costs the leadership, not the answer's truth
(Kafka's rule: UNKNOWN_SERVER_ERROR, renounce, begin again from the last committed state).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from broker.clock import Clock
from broker.logs import EventLog
from broker.metadata.controller import Controller, OwnBroker
from broker.metadata.delta import MetadataDelta
from broker.metadata.image import EMPTY_IMAGE, MetadataImage
from broker.metadata.jobs import Job
from broker.metadata.loader import Publication, RecordBatch
from broker.metadata.records import VersionedRecord, decode_record, encode_record
from broker.metadata.result import Result
from broker.runtime.quorum import CommittedBatch, LeaderAndEpoch, NotLeader, Quorum
from broker.runtime.waiters import Loop
from protocol.errors import ErrorCode, KafkaError
from storage.errors import LogDirFailure

R = TypeVar("R")
Command = Callable[[Controller, int], Result[R]]

_log: Final = EventLog("broker.controller")


class MetadataPublisher(Protocol):
    """Someone who follows the metadata."""

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """`image` is committed and `delta` led to it from the image before. Called on the loop, in order."""
        ...


class _Waiting(NamedTuple):
    """An answer held back until the log is committed up to and with `offset`."""

    offset: int
    future: "asyncio.Future[Any]"
    response: object


class ControllerDriver:
    """The controller of this node, active or not, and the source of its metadata images.

    `own_broker` is the broker in this process, `bootstrap` what an empty log begins with. It must be added to the
    quorum as a listener. Committed records that do not replay raise out of `on_commit`, which ends the node.
    """

    def __init__(
        self,
        controller: Controller,
        quorum: Quorum,
        *,
        loop: Loop,
        clock: Clock,
        bootstrap: Sequence[VersionedRecord],
        own_broker: OwnBroker | None,
    ) -> None:
        self._controller = controller
        self._quorum = quorum
        self._loop = loop
        self._clock = clock
        self._bootstrap = bootstrap
        self._own_broker = own_broker
        self._publishers: list[MetadataPublisher] = []
        self._published: MetadataImage | None = None
        self._claimed_epoch = -1  # -1 while this node is not the active controller
        self._waiting: deque[_Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._activated = asyncio.Event()

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
    def image(self) -> MetadataImage:
        """The latest committed image."""
        return self._controller.committed_image

    def add_publisher(self, publisher: MetadataPublisher) -> None:
        """Add a follower; one that comes late gets the whole image as its first delta."""
        if self._published is not None:
            publisher.on_metadata(_whole(self._published), self._published)
        self._publishers.append(publisher)

    async def wait_active(self) -> None:
        """Return once this node is the active controller and its first records are committed."""
        await self._activated.wait()

    # Commands

    def submit(self, command: Command[R]) -> "asyncio.Future[R]":
        """Decide and write at once; the future has the answer when what was written, or was pending, is committed.

        Raises KafkaError: the command's own, NOT_CONTROLLER while another leads, UNKNOWN_SERVER_ERROR for a failure
        nobody foresaw. The future fails with NOT_CONTROLLER if leadership is lost before the commit.
        """
        response, offset = self._execute(command)
        future: asyncio.Future[R] = self._loop.create_future()
        committed = self._quorum.high_watermark
        if committed is not None and offset < committed:
            future.set_result(response)
        else:
            self._waiting.append(_Waiting(offset, future, response))
        return future

    def _execute(self, command: Command[R]) -> tuple[R, int]:
        """Decide, append, replay: no other command gets in between. Returns the offset that must be committed."""
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
        return result.response, self._controller.last_offset

    def _append(self, records: Sequence[VersionedRecord]) -> None:
        frames = [encode_record(*record) for record in records]
        appended = self._quorum.append(self._claimed_epoch, frames)
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
        end = batches[-1].last_offset
        for publication in self._controller.commit(end):
            self._publish(publication)
        foreign = [batch for batch in batches if batch.base_offset > self._controller.last_offset]
        if foreign:
            self._publish(self._controller.load([_decoded(batch) for batch in foreign]))
        while self._waiting and self._waiting[0].offset <= end:
            _, future, response = self._waiting.popleft()
            if not future.done():  # whoever asked may have gone
                future.set_result(response)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Become the active controller, or stop being it."""
        self._renounce()
        if leader.leader_id == self._quorum.node_id:
            self._claim(leader.epoch)

    def close(self) -> None:
        """Stop deciding, for the node stops: whoever waits is told that another must answer."""
        self._renounce()

    def _claim(self, epoch: int) -> None:
        _log.info("This node is the active controller", epoch=epoch)
        self._claimed_epoch = epoch
        activation = self.submit(
            lambda controller, now_ms: controller.activate(self._bootstrap, own_broker=self._own_broker, now_ms=now_ms)
        )
        activation.add_done_callback(self._on_activation_committed)

    def _on_activation_committed(self, future: "asyncio.Future[None]") -> None:
        if not future.cancelled() and future.exception() is None:
            self._activated.set()

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
        if self._published is None:
            high_watermark = self._quorum.high_watermark
            if high_watermark is None or self._controller.last_offset + 1 < high_watermark or image.is_empty:
                return
            if not delta.image.is_empty:
                delta = _whole(image)
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
            self._timer = self._loop.call_at(self._loop.time() + delay, self._run_jobs)

    def _run_jobs(self) -> None:
        for job in self._controller.due_jobs(self._now_ms()):
            try:
                self._execute(partial(_run, job))
            except KafkaError as error:
                _log.warning("A job of the controller did not run", error=str(error))
                break
        self._rearm_timer()

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_ms())


def _run(job: Job, _controller: Controller, now_ms: int) -> Result[None]:
    return job(now_ms)


def _decoded(batch: CommittedBatch) -> RecordBatch:
    """Raises DecodeError: a committed record that cannot be read ends the node."""
    records = [decode_record(frame) for frame in batch.frames]
    return RecordBatch(batch.base_offset, batch.last_offset, batch.epoch, batch.timestamp_ms, records)


def _whole(image: MetadataImage) -> MetadataDelta:
    """The delta that leads from nothing to an image."""
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay_all(record.message for record in image.write())
    return delta


def _not_controller() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER)
