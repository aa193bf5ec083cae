"""Cuts snapshots of the metadata on this node, voter or observer, while everything else goes on (KIP-630).

Theory. An image is immutable, so one that is due is simply kept, and written down in slices of a few milliseconds while
the node replays further records into newer images. The file is written on a thread of its own, aside and synced; when
it is in place the quorum hears of it, and may cut the log. One snapshot at a time.

Whether one is due is asked with every image, and when time alone makes it due: a log may rest after a change, and what
was changed last must not wait for the next change to be in a snapshot.

A snapshot ends where its image stands, so images that end inside a batch are passed over; the next one will do. What is
counted towards the next snapshot is counted from the image of this one on, not from the end of its writing.

A disk that cannot take a snapshot is no fault of the log: it is tried again after `RETRY_MS`. An image that cannot be
encoded is a fault of ours: this node then cuts no more snapshots, says so, and goes on, as Kafka does; the others will
have the same fault, and a cluster that stops is worth less than one whose log grows.
"""

from asyncio import CancelledError, Future, TimerHandle
from functools import partial
from math import inf
from typing import Final, NamedTuple, Protocol

from broker.clock import Clock
from broker.logs import EventLog
from broker.metadata.image.changed_records import changed_records
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.snapshot.codec import image_batches
from broker.metadata.snapshot.load import LoadedSnapshot
from broker.metrics.snapshots import SnapshotMetrics
from broker.quorum.control_history import Control
from broker.quorum.identity import SnapshotId
from broker.quorum.settings import StoredSnapshot
from broker.quorum.snapshots.rules import SnapshotReason, SnapshotTrigger
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.sliced_work import SlicedSteps, SlicedWork
from broker.runtime.loop.waiters import Loop
from broker.runtime.quorum.metadata_log import RawSnapshotWriter
from protocol.records.batch import parse_header
from protocol.records.compression import Codec
from protocol.records.quorum_control import ControlState

RETRY_MS: Final = 60_000
_WRITE_BYTES: Final = 1024 * 1024  # handed to the disk at a time

_log: Final = EventLog("broker.snapshots")


class SnapshotImpossible(Exception):
    """No snapshot can be cut here now; the text says why."""


class SnapshotQuorum(Protocol):
    """What generating needs of the quorum; `QuorumDriver` has it."""

    def can_snapshot_at(self, end_offset: int) -> SnapshotId | None:
        """The id of a snapshot that ends there; None if there cannot be one, or is one already."""
        ...

    def control_before(self, end_offset: int) -> Control:
        """kraft.version and voters as of the record before."""
        ...

    def begin_snapshot(self, snapshot_id: SnapshotId) -> RawSnapshotWriter:
        """Its writer; blocks for the creation of a file."""
        ...

    def on_snapshot_generated(self, snapshot: StoredSnapshot) -> None:
        """It is in place, durably."""
        ...


class _Cut(NamedTuple):
    """A finished snapshot and how many metadata records it holds."""

    stored: StoredSnapshot
    record_count: int


class SnapshotGenerator:
    """Follows the log and the metadata of one node: add it to the controller's driver as log follower and publisher.

    `io` must not be the thread that syncs the log: commits would wait for the snapshot's bytes.
    """

    def __init__(
        self,
        quorum: SnapshotQuorum,
        trigger: SnapshotTrigger,
        metrics: SnapshotMetrics,
        *,
        codec: Codec,
        loop: Loop,
        clock: Clock,
        io: BlockingIo,
    ) -> None:
        self._quorum = quorum
        self._trigger = trigger
        self._metrics = metrics
        self._codec = codec
        self._loop = loop
        self._clock = clock
        self._io = io
        self._image: MetadataImage | None = None
        self._work: SlicedWork[_Cut] | None = None
        self._latest: SnapshotId | None = None
        self._requests: list[Future[SnapshotId]] = []
        self._retry_at_ms = 0.0
        self._timer: TimerHandle | None = None
        self._timer_at_ms = inf
        self._stopped_because: str | None = None

    @property
    def is_running(self) -> bool:
        """Whether a snapshot is being written."""
        return self._work is not None

    def generate_now(self) -> "Future[SnapshotId]":
        """Cut a snapshot of the metadata as they are now, or as soon as that is possible.

        If nothing was written since the latest snapshot, the id is that one's. The future fails with
        SnapshotImpossible, or with OSError.
        """
        future: Future[SnapshotId] = self._loop.create_future()
        self._requests.append(future)
        if self._stopped_because is not None:
            self._refuse(self._stopped_because)
        else:
            self._trigger.request()
            self._consider()
        return future

    def close(self) -> None:
        """Stop; what is half written is abandoned."""
        self._stop("this node is stopping")
        if self._timer is not None:
            self._timer.cancel()
        if self._work is not None:
            self._work.done.cancel()

    # What it follows

    def on_log_read(self, size_bytes: int) -> None:
        self._trigger.on_log_read(size_bytes)

    def on_delta(self, delta: MetadataDelta) -> None:
        self._trigger.on_changed(changed_records(delta))

    def on_snapshot_loaded(self, snapshot_id: SnapshotId, loaded: LoadedSnapshot, size: int, elapsed_ms: float) -> None:
        """What was loaded counts like an own one, and makes one that is being written worthless."""
        if self._work is not None:
            self._work.done.cancel()
        self._latest = snapshot_id
        self._trigger.on_snapshot(loaded.record_count, self._clock.monotonic_ms())
        self._metrics.on_loaded(snapshot_id.end_offset, size, elapsed_ms)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """As a publisher: only the newest image is of interest."""
        self._image = image
        self._consider()

    # Cutting

    def _consider(self) -> None:
        image, now_ms = self._image, self._clock.monotonic_ms()
        if image is None or self._work is not None or self._stopped_because is not None:
            return
        if not image.provenance.is_batch_aligned:  # the rest of the batch brings the next image
            return
        reason = self._trigger.reason(now_ms)
        if reason is SnapshotReason.REQUEST or (reason is not None and now_ms >= self._retry_at_ms):
            self._begin(image, now_ms)
        else:
            due_at_ms = self._trigger.deadline if reason is None else now_ms
            self._look_again(max(due_at_ms, self._retry_at_ms), now_ms)

    def _look_again(self, at_ms: float, now_ms: float) -> None:
        if at_ms == inf or at_ms >= self._timer_at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = at_ms
        delay_ms = max(1.0, at_ms - now_ms)
        self._timer = self._loop.call_at(self._loop.time() + delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at_ms = None, inf
        self._consider()

    def _begin(self, image: MetadataImage, now_ms: float) -> None:
        self._trigger.begin(now_ms)
        requests, self._requests = self._requests, []
        snapshot_id = self._quorum.can_snapshot_at(image.offset + 1)
        if snapshot_id is None:
            self._trigger.fail()
            self._answer_without(requests, image)
            return
        self._work = SlicedWork(self._steps(snapshot_id, image), self._loop, self._clock, rests=True)
        self._work.done.add_done_callback(partial(self._on_done, snapshot_id, requests, now_ms))

    def _answer_without(self, requests: "list[Future[SnapshotId]]", image: MetadataImage) -> None:
        """There is a snapshot of this image, or this replica must not have one."""
        for request in requests:
            if request.done():
                continue
            if self._latest == SnapshotId(image.offset + 1, image.epoch):
                request.set_result(self._latest)
            else:
                request.set_exception(SnapshotImpossible(f"no snapshot can end at offset {image.offset + 1} here"))

    def _steps(self, snapshot_id: SnapshotId, image: MetadataImage) -> SlicedSteps[_Cut]:
        assert snapshot_id.epoch == image.epoch, (snapshot_id, image.provenance)
        control = _control_state(self._quorum.control_before(snapshot_id.end_offset))
        beginning = self._io.submit(partial(self._quorum.begin_snapshot, snapshot_id))
        yield beginning
        writer = beginning.result()
        try:
            return (yield from self._write(writer, image, control))
        except BaseException:  # cancelled or failed, it must leave nothing
            self._io.submit(writer.abandon)
            raise

    def _write(self, writer: RawSnapshotWriter, image: MetadataImage, control: ControlState) -> SlicedSteps[_Cut]:
        gathered, record_count = bytearray(), 0
        for batch in image_batches(image, control, codec=self._codec):
            if batch:
                header = parse_header(batch)
                record_count += 0 if header.is_control else header.record_count
                gathered += batch
            if len(gathered) >= _WRITE_BYTES:
                writing = self._io.submit(partial(writer.append, bytes(gathered)))
                yield writing
                writing.result()
                gathered.clear()
            else:
                yield None
        last = self._io.submit(partial(writer.append, bytes(gathered)))
        yield last
        last.result()
        committing = self._io.submit(partial(writer.commit, image.provenance.timestamp_ms))
        yield committing
        return _Cut(committing.result(), record_count)

    # Done

    def _on_done(
        self, snapshot_id: SnapshotId, requests: "list[Future[SnapshotId]]", began_ms: float, done: "Future[_Cut]"
    ) -> None:
        self._work = None
        error = CancelledError() if done.cancelled() else done.exception()
        if error is None:
            self._succeed(done.result(), began_ms)
        else:
            self._trigger.fail()
            self._fail(snapshot_id, error)
        for request in requests:
            if request.done():
                continue
            if error is None:
                request.set_result(snapshot_id)
            elif isinstance(error, OSError):
                request.set_exception(error)
            else:
                request.set_exception(SnapshotImpossible(self._stopped_because or "a newer snapshot has come"))
        self._consider()

    def _succeed(self, cut: _Cut, began_ms: float) -> None:
        stored, now_ms = cut.stored, self._clock.monotonic_ms()
        self._latest = stored.id
        self._trigger.end(cut.record_count)
        self._metrics.on_generated(stored.id.end_offset, stored.size, now_ms - began_ms, now_ms)
        _log.info(
            "Generated a metadata snapshot",
            end_offset=stored.id.end_offset,
            epoch=stored.id.epoch,
            records=cut.record_count,
            size=stored.size,
            elapsed_ms=round(now_ms - began_ms),
        )
        self._quorum.on_snapshot_generated(stored)

    def _fail(self, snapshot_id: SnapshotId, error: BaseException) -> None:
        if isinstance(error, CancelledError):
            return
        self._metrics.on_failed()
        if isinstance(error, OSError):
            self._retry_at_ms = self._clock.monotonic_ms() + RETRY_MS
            _log.warning("A metadata snapshot was not written", end_offset=snapshot_id.end_offset, error=str(error))
        else:
            _log.error("The metadata cannot be written as a snapshot; this node cuts none any more", error)
            self._stop(f"the metadata cannot be written as a snapshot: {error}")

    def _stop(self, reason: str) -> None:
        self._stopped_because = self._stopped_because or reason
        self._refuse(reason)

    def _refuse(self, reason: str) -> None:
        requests, self._requests = self._requests, []
        for request in requests:
            if not request.done():
                request.set_exception(SnapshotImpossible(reason))


def _control_state(control: Control) -> ControlState:
    """What a snapshot states: voters of the configuration are in no record, and in no snapshot."""
    voters = None if control.voters_offset is None else control.voters.to_record()
    return ControlState(control.kraft_version, voters)
