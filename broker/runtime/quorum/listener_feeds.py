"""Delivery of committed batches to listeners, to each from the start, in order and without blocking the loop.

Theory. A feed has a position: all offsets below it were delivered. It advances towards the high watermark in three
ways:

- by batches of this node that are still in memory, if one starts at the position;
- by reading the log in chunks, decoded a few hundred records at a time with other work of the loop in between;
- by loading a snapshot, if the log starts above the position, or for a new listener if there is a snapshot.

Leader changes are delivered at once, except a node's own leadership: it is delivered after all committed batches, among
them a record of the new epoch, so that the new leader's decisions are based on all earlier ones (KIP-595).
"""

from asyncio import Future
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from broker.quorum.identity import LeaderAndEpoch, SnapshotId
from broker.runtime.loop.runtime import Runtime
from broker.runtime.quorum.quorum import CommittedBatch, QuorumListener, RawSnapshotReader
from protocol.ids import EPOCH_ZERO
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, iter_headers
from protocol.records.reader import iter_records
from storage.errors import CorruptBatch
from storage.local_log import LogSlice

CHUNK_BYTES: Final = 1024 * 1024
SLICE_RECORDS: Final = 256
"""Decoding and applying this many records takes a few milliseconds. A batch takes effect as a whole, so is not split.
"""
RECENT_BYTES: Final = 32 * 1024 * 1024
"""Limit of the own batches kept in memory until they are committed; further batches are read from the log."""


class CommittedLog(Protocol):
    """The part of the metadata log that feeds use."""

    @property
    def log_start_offset(self) -> int: ...

    def read(self, offset: int, max_bytes: int, upper: int) -> LogSlice: ...

    def warm(self, found: LogSlice) -> None: ...

    def open_snapshot(self, snapshot_id: SnapshotId) -> RawSnapshotReader: ...


class _Feed:
    """A listener and its position. `is_waiting`: for a disk read, a loop iteration, or the listener's snapshot load."""

    __slots__ = ("announced", "batches", "is_loading", "is_waiting", "last_epoch", "listener", "next_offset")

    def __init__(self, listener: QuorumListener) -> None:
        self.listener = listener
        self.next_offset = 0
        self.last_epoch = 0
        self.announced: LeaderAndEpoch | None = None
        self.batches: Iterator[CommittedBatch] = iter(())
        self.is_waiting = False
        self.is_loading = False

    def take(self, batches: list[CommittedBatch]) -> None:
        self.next_offset = batches[-1].last_offset + 1
        self.last_epoch = batches[-1].epoch
        self.listener.on_commit(batches)


class ListenerFeeds:
    """The feeds of a node. The owner keeps `newest_snapshot` equal to the log's newest snapshot.

    `on_failure` receives any exception of a listener or the disk. Between `pause` and `resume` the log is not read.
    """

    def __init__(
        self,
        log: CommittedLog,
        runtime: Runtime,
        *,
        node_id: int,
        newest_snapshot: SnapshotId | None,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.newest_snapshot = newest_snapshot
        self._log = log
        self._node_id = node_id
        self._loop = runtime.loop
        self._io = runtime.io
        self._on_failure = on_failure
        self._feeds: list[_Feed] = []
        self._recent: deque[CommittedBatch] = deque()
        self._recent_bytes = 0
        self._high_watermark = -1
        self._leader = LeaderAndEpoch(None, EPOCH_ZERO)
        self._is_paused = False
        self._is_closed = False

    def add(self, listener: QuorumListener) -> None:
        """Start to deliver to a listener, in a later loop iteration and from the start of the log."""
        feed = _Feed(listener)
        self._feeds.append(feed)
        self._continue_later(feed)

    def remember(self, batch: CommittedBatch) -> None:
        """Keep a batch that this node appended, so that it need not be read after its commit."""
        size = sum(map(len, batch.frames))
        if self._recent_bytes + size <= RECENT_BYTES:
            self._recent.append(batch)
            self._recent_bytes += size

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Deliver the leader. If another node leads, drop the batches in memory, which may have been truncated."""
        if leader != self._leader:
            self._leader = leader
            if leader.leader_id != self._node_id:
                self._forget_recent()
            for feed in list(self._feeds):
                self._run(partial(self._deliver_leader, feed))

    def on_high_watermark(self, offset: int) -> None:
        """Deliver batches up to the new high watermark."""
        self._high_watermark = offset
        for feed in list(self._feeds):
            self._pump(feed)
        while self._recent and self._recent[0].last_offset < offset:
            self._recent_bytes -= sum(map(len, self._recent.popleft().frames))

    def pause(self) -> None:
        """Stop reading the log, because another thread truncates it."""
        self._is_paused = True
        self._forget_recent()

    def resume(self) -> None:
        """Read the log again."""
        self._is_paused = False
        for feed in list(self._feeds):
            self._pump(feed)

    def close(self) -> None:
        """Stop all deliveries."""
        self._is_closed = True
        self._forget_recent()

    # Advancing a feed

    def _pump(self, feed: _Feed) -> None:
        if not feed.is_waiting:
            self._run(partial(self._move, feed))

    def _move(self, feed: _Feed) -> None:
        room = SLICE_RECORDS
        while feed.next_offset < self._high_watermark and not self._is_closed:
            if room <= 0:
                self._continue_later(feed)
                return
            delivered = self._deliver(feed, room)
            room -= delivered
            if not delivered and not self._find_more(feed):
                return
        self._deliver_leader(feed)

    def _deliver(self, feed: _Feed, room: int) -> int:
        """Deliver decoded batches of about `room` records. Return the number of records."""
        batches: list[CommittedBatch] = []
        count = 0
        for batch in feed.batches:
            batches.append(batch)
            count += batch.last_offset - batch.base_offset + 1
            if count >= room:
                break
        if batches:
            feed.take(batches)
        return count

    def _find_more(self, feed: _Feed) -> bool:
        """Choose the source of the next batches. Return whether they are available at once."""
        recent = self._recent_from(feed.next_offset)
        if recent:
            feed.batches = iter(recent)
            return True
        if self._is_paused:
            return False
        is_new = feed.next_offset == 0 and self.newest_snapshot is not None
        if is_new or feed.next_offset < self._log.log_start_offset:
            return self._load(feed)
        return self._read(feed)

    def _recent_from(self, offset: int) -> list[CommittedBatch]:
        """Return the contiguous committed batches in memory that start at `offset`."""
        found = []
        for batch in self._recent:
            if batch.base_offset != offset or batch.last_offset >= self._high_watermark:
                break
            found.append(batch)
            offset = batch.last_offset + 1
        return found

    def _read(self, feed: _Feed) -> bool:
        found = self._log.read(feed.next_offset, CHUNK_BYTES, self._high_watermark)
        if not found.data:
            raise AssertionError(
                f"the log has no batch at offset {feed.next_offset}, the high watermark is {self._high_watermark}"
            )
        feed.batches = _committed_batches(found.data, feed.next_offset)
        if found.cold:
            feed.is_waiting = True
            self._io.submit(partial(self._log.warm, found)).add_done_callback(partial(self._continue, feed))
        return not found.cold

    def _load(self, feed: _Feed) -> bool:
        snapshot_id = self.newest_snapshot
        if snapshot_id is None:
            raise AssertionError(f"the log starts at offset {self._log.log_start_offset} without a snapshot")
        feed.is_waiting = feed.is_loading = True
        loading = feed.listener.on_load_snapshot(snapshot_id, self._log.open_snapshot(snapshot_id))
        if loading is None:
            self._loaded(feed, snapshot_id)
        else:
            loading.add_done_callback(partial(self._continue_loaded, feed, snapshot_id))
        return loading is None

    def _loaded(self, feed: _Feed, snapshot_id: SnapshotId) -> None:
        feed.next_offset, feed.last_epoch = snapshot_id.end_offset, snapshot_id.epoch
        feed.is_waiting = feed.is_loading = False

    # Waiting

    def _continue_later(self, feed: _Feed) -> None:
        feed.is_waiting = True
        self._loop.call_soon(partial(self._continue, feed, None))

    def _continue(self, feed: _Feed, done: "Future[None] | None") -> None:
        feed.is_waiting = False
        if done is None or self._succeeded(done):
            self._pump(feed)

    def _continue_loaded(self, feed: _Feed, snapshot_id: SnapshotId, done: "Future[None]") -> None:
        if self._succeeded(done):
            self._loaded(feed, snapshot_id)
            self._pump(feed)

    def _succeeded(self, done: "Future[None]") -> bool:
        if done.cancelled() or self._is_closed:
            return False
        error = done.exception()
        if error is not None:
            self._on_failure(error)
        return error is None

    def _run(self, action: Callable[[], None]) -> None:
        """Run an action. An exception of a listener or the log stops the node, because no batch is delivered twice."""
        if self._is_closed:
            return
        try:
            action()
        except Exception as error:  # noqa: BLE001  later batches must not be delivered after any exception
            self._on_failure(error)

    # The leader

    def _deliver_leader(self, feed: _Feed) -> None:
        leader, announced = self._leader, feed.announced
        if leader == announced or feed.is_loading or self._is_closed:
            return
        if leader.leader_id == self._node_id and not self._has_seen_own_epoch(feed):
            return
        feed.announced = leader
        if leader.leader_id is not None or (announced is not None and announced.leader_id is not None):
            feed.listener.on_leader_change(leader)

    def _has_seen_own_epoch(self, feed: _Feed) -> bool:
        return feed.last_epoch == self._leader.epoch and feed.next_offset >= self._high_watermark

    def _forget_recent(self) -> None:
        self._recent.clear()
        self._recent_bytes = 0


def _committed_batches(chunk: Buffer, expected: int) -> Iterator[CommittedBatch]:
    """Decode the batches of a chunk lazily. Raises CorruptBatch where offsets have a gap: no checksum covers them."""
    for position, header in iter_headers(chunk):
        if header.base_offset != expected:
            raise CorruptBatch(f"the metadata log has a batch at offset {header.base_offset} instead of {expected}")
        yield _committed(chunk, position, header)
        expected = header.next_offset


def _committed(chunk: Buffer, position: int, header: BatchHeader) -> CommittedBatch:
    frames = () if header.is_control else [record.value or b"" for record in iter_records(chunk, position)]
    return CommittedBatch(header.base_offset, header.last_offset, header.leader_epoch, header.max_timestamp, frames)
