"""Generation of metadata snapshots on this node, voter or observer, concurrently with all other work (KIP-630).

Theory. An image is immutable, so the generator keeps the image of a due snapshot and encodes it in slices of a few
milliseconds, while the node replays further records into newer images. A separate thread writes and syncs a temporary
file. After the rename the quorum is notified and may trim the log. One snapshot is generated at a time.

The trigger is evaluated with every image, and by a timer for the time limit: a log may be idle after a change, and the
last change must not wait for a further one.

A snapshot ends at its image's offset, so images that end inside a batch are skipped. Changes count towards the next
snapshot from this snapshot's image on, not from the end of its writing.

A disk error does not affect the log; generation is retried after `RETRY_MS`. An image that cannot be encoded is a
defect of Ottla: this node logs it, generates no further snapshots, and continues, as Kafka does. All nodes have the
same defect, and a growing log is better than a stopped cluster.
"""

from asyncio import CancelledError, Future, TimerHandle
from functools import partial
from math import inf
from typing import Final, NamedTuple, Protocol

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
from broker.runtime.loop.runtime import Runtime
from broker.runtime.loop.sliced_work import SlicedSteps, SlicedWork
from broker.runtime.quorum.metadata_log import RawSnapshotWriter
from protocol.ids import LeaderEpoch, Offset
from protocol.records.batch import parse_header
from protocol.records.compression import Codec
from protocol.records.quorum_control import ControlState

RETRY_MS: Final = 60_000
_WRITE_BYTES: Final = 1024 * 1024  # bytes per write to the disk

_log: Final = EventLog("broker.snapshots")


class SnapshotImpossible(Exception):
    """No snapshot can be generated on this node now; the message is the reason."""


class SnapshotQuorum(Protocol):
    """The part of `QuorumDriver` that the generator uses."""

    def can_snapshot_at(self, end_offset: int) -> SnapshotId | None:
        """Return the id of a snapshot with this end offset; None if none is possible or one exists."""
        ...

    def control_before(self, end_offset: int) -> Control:
        """Return the kraft.version and voters in force before the offset."""
        ...

    def begin_snapshot(self, snapshot_id: SnapshotId) -> RawSnapshotWriter:
        """Create the snapshot's writer. Blocks."""
        ...

    def on_snapshot_generated(self, snapshot: StoredSnapshot) -> None:
        """Report a snapshot that is durably on disk."""
        ...


class _Generated(NamedTuple):
    """A generated snapshot and its number of metadata records."""

    stored: StoredSnapshot
    record_count: int


class SnapshotGenerator:
    """A log follower and metadata publisher of the controller's driver.

    `runtime.io` must not be the thread that syncs the log, because commits would wait for the writes of a snapshot.
    """

    def __init__(
        self,
        quorum: SnapshotQuorum,
        trigger: SnapshotTrigger,
        metrics: SnapshotMetrics,
        runtime: Runtime,
        *,
        codec: Codec,
    ) -> None:
        self._quorum = quorum
        self._trigger = trigger
        self._metrics = metrics
        self._codec = codec
        self._loop = runtime.loop
        self._clock = runtime.clock
        self._io = runtime.io
        self._image: MetadataImage | None = None
        self._work: SlicedWork[_Generated] | None = None
        self._latest: SnapshotId | None = None
        self._requests: list[Future[SnapshotId]] = []
        self._retry_at_ms = 0.0
        self._timer: TimerHandle | None = None
        self._timer_at_ms = inf
        self._stopped_because: str | None = None

    def generate_now(self) -> "Future[SnapshotId]":
        """Generate a snapshot of the present metadata as soon as possible.

        Without changes since the latest snapshot the result is its id. The future fails with SnapshotImpossible or
        OSError.
        """
        future: Future[SnapshotId] = self._loop.create_future()
        self._requests.append(future)
        if self._stopped_because is not None:
            self._refuse(self._stopped_because)
        else:
            self._trigger.request()
            self._generate_if_due()
        return future

    def close(self) -> None:
        """Stop, and abandon a snapshot in progress."""
        self._stop("this node is stopping")
        if self._timer is not None:
            self._timer.cancel()
        if self._work is not None:
            self._work.done.cancel()

    # Input

    def on_log_read(self, size_bytes: int) -> None:
        self._trigger.on_log_read(size_bytes)

    def on_delta(self, delta: MetadataDelta) -> None:
        self._trigger.on_changed(changed_records(delta))

    def on_snapshot_loaded(self, snapshot_id: SnapshotId, loaded: LoadedSnapshot, size: int, elapsed_ms: float) -> None:
        """Count a loaded snapshot like a generated one, and abandon the snapshot in progress."""
        if self._work is not None:
            self._work.done.cancel()
        self._latest = snapshot_id
        self._trigger.on_snapshot(loaded.record_count, self._clock.monotonic_ms())
        self._metrics.on_loaded(snapshot_id.end_offset, size, elapsed_ms)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Keep the newest image, and start a snapshot if one is due."""
        self._image = image
        self._generate_if_due()

    # Generating

    def _generate_if_due(self) -> None:
        image, now_ms = self._image, self._clock.monotonic_ms()
        if image is None or self._work is not None or self._stopped_because is not None:
            return
        if not image.provenance.is_batch_aligned:  # the next image includes the rest of the batch
            return
        reason = self._trigger.reason(now_ms)
        if reason is SnapshotReason.REQUEST or (reason is not None and now_ms >= self._retry_at_ms):
            self._begin(image, now_ms)
        else:
            due_at_ms = self._trigger.deadline if reason is None else now_ms
            self._set_timer(max(due_at_ms, self._retry_at_ms), now_ms)

    def _set_timer(self, at_ms: float, now_ms: float) -> None:
        if at_ms == inf or at_ms >= self._timer_at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = at_ms
        delay_ms = max(1.0, at_ms - now_ms)
        self._timer = self._loop.call_at(self._loop.time() + delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at_ms = None, inf
        self._generate_if_due()

    def _begin(self, image: MetadataImage, now_ms: float) -> None:
        self._trigger.begin(now_ms)
        requests, self._requests = self._requests, []
        snapshot_id = self._quorum.can_snapshot_at(image.offset + 1)
        if snapshot_id is None:
            self._trigger.fail()
            self._resolve_without_snapshot(requests, image)
            return
        self._work = SlicedWork(self._steps(snapshot_id, image), self._loop, self._clock, pauses=True)
        self._work.done.add_done_callback(partial(self._on_done, snapshot_id, requests, now_ms))

    def _resolve_without_snapshot(self, requests: "list[Future[SnapshotId]]", image: MetadataImage) -> None:
        """Resolve requests when this image already has a snapshot, or must not have one on this replica."""
        for request in requests:
            if request.done():
                continue
            if self._latest == SnapshotId(Offset(image.offset + 1), LeaderEpoch(image.epoch)):
                request.set_result(self._latest)
            else:
                request.set_exception(SnapshotImpossible(f"no snapshot can end at offset {image.offset + 1} here"))

    def _steps(self, snapshot_id: SnapshotId, image: MetadataImage) -> SlicedSteps[_Generated]:
        assert snapshot_id.epoch == image.epoch, (snapshot_id, image.provenance)
        control = _control_state(self._quorum.control_before(snapshot_id.end_offset))
        beginning = self._io.submit(partial(self._quorum.begin_snapshot, snapshot_id))
        yield beginning
        writer = beginning.result()
        try:
            return (yield from self._write(writer, image, control))
        except BaseException:  # also on cancellation the temporary file must be deleted
            self._io.submit(writer.abandon)
            raise

    def _write(self, writer: RawSnapshotWriter, image: MetadataImage, control: ControlState) -> SlicedSteps[_Generated]:
        """Encode the next part of the file while the last one is written. At most two parts are in memory."""
        part: list[bytes] = []
        size, record_count = 0, 0
        writing: Future[None] | None = None
        for batch in image_batches(image, control, codec=self._codec):
            if batch:
                header = parse_header(batch)
                record_count += 0 if header.is_control else header.record_count
                part.append(batch)
                size += len(batch)
            if size < _WRITE_BYTES:
                yield None
                continue
            if writing is not None:
                yield writing
                writing.result()
            writing = self._io.submit(partial(writer.append, b"".join(part)))
            part, size = [], 0
        if writing is not None:
            yield writing
            writing.result()
        last = self._io.submit(partial(writer.append, b"".join(part)))
        yield last
        last.result()
        committing = self._io.submit(partial(writer.commit, image.provenance.timestamp_ms))
        yield committing
        return _Generated(committing.result(), record_count)

    # Results

    def _on_done(
        self, snapshot_id: SnapshotId, requests: "list[Future[SnapshotId]]", began_ms: float, done: "Future[_Generated]"
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
                request.set_exception(SnapshotImpossible(self._stopped_because or "a newer snapshot was loaded"))
        self._generate_if_due()

    def _succeed(self, generated: _Generated, began_ms: float) -> None:
        stored, now_ms = generated.stored, self._clock.monotonic_ms()
        self._latest = stored.id
        self._trigger.end(generated.record_count)
        self._metrics.on_generated(stored.id.end_offset, stored.size, now_ms - began_ms, now_ms)
        _log.info(
            "Generated a metadata snapshot",
            end_offset=stored.id.end_offset,
            epoch=stored.id.epoch,
            records=generated.record_count,
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
            _log.warning("Failed to write a metadata snapshot", end_offset=snapshot_id.end_offset, error=str(error))
        else:
            _log.error("Failed to encode the metadata as a snapshot; this node generates no further snapshots", error)
            self._stop(f"the metadata cannot be encoded as a snapshot: {error}")

    def _stop(self, reason: str) -> None:
        self._stopped_because = self._stopped_because or reason
        self._refuse(reason)

    def _refuse(self, reason: str) -> None:
        requests, self._requests = self._requests, []
        for request in requests:
            if not request.done():
                request.set_exception(SnapshotImpossible(reason))


def _control_state(control: Control) -> ControlState:
    """Return the control records of a snapshot. Voters from the configuration are not part of it."""
    voters = None if control.voters_offset is None else control.voters.to_record()
    return ControlState(control.kraft_version, voters)
