"""Hands what is committed to those who listen, each from its beginning on, in order and without holding the loop.

Theory. A feed is a position: everything below it was told. It moves towards the high watermark in one of three ways:

- by what this node just wrote itself and still has in memory, if that begins at the position;
- by reading the log, in chunks that are decoded a few hundred records at a time, other work of the loop in between;
- by a snapshot, where the log does not reach back to the position, or for a newcomer where there is one.

The leader is told at once, except that a node hears of its own leadership only when its feed has told everything
committed, a record of that epoch among it: whoever decides from then on has seen all that was decided before (KIP-595).
"""

from asyncio import Future
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from broker.quorum.identity import LeaderAndEpoch, SnapshotId
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.waiters import Loop
from broker.runtime.quorum.quorum import CommittedBatch, QuorumListener, RawSnapshotReader
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, iter_headers
from protocol.records.reader import iter_records
from storage.local_log import LogSlice

CHUNK_BYTES: Final = 1024 * 1024
SLICE_RECORDS: Final = 512
"""Decoding and applying so many takes a few milliseconds. A batch is never divided: it takes effect as one."""
RECENT_BYTES: Final = 32 * 1024 * 1024
"""Of own batches in memory until they are committed. What is beyond is read from the log, when the time comes."""


class CommittedLog(Protocol):
    """What feeds need of the metadata log."""

    @property
    def log_start_offset(self) -> int: ...

    def read(self, offset: int, max_bytes: int, upper: int) -> LogSlice: ...

    def warm(self, found: LogSlice) -> None: ...

    def open_snapshot(self, snapshot_id: SnapshotId) -> RawSnapshotReader: ...


class _Feed:
    """A listener and how far it is. `is_waiting`: for a disk, for its turn or for its listener to load a snapshot."""

    __slots__ = ("batches", "is_loading", "is_waiting", "last_epoch", "listener", "next_offset", "told")

    def __init__(self, listener: QuorumListener) -> None:
        self.listener = listener
        self.next_offset = 0
        self.last_epoch = 0
        self.told: LeaderAndEpoch | None = None
        self.batches: Iterator[CommittedBatch] = iter(())
        self.is_waiting = False
        self.is_loading = False

    def take(self, batches: list[CommittedBatch]) -> None:
        self.next_offset = batches[-1].last_offset + 1
        self.last_epoch = batches[-1].epoch
        self.listener.on_commit(batches)


class ListenerFeeds:
    """The feeds of a node. `newest_snapshot` is that of the log; its owner keeps it up to date.

    `on_failure` is told of whatever a listener or the disk raises. Between `pause` and `resume` the log is not touched.
    """

    def __init__(
        self,
        log: CommittedLog,
        *,
        node_id: int,
        loop: Loop,
        io: BlockingIo,
        newest_snapshot: SnapshotId | None,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.newest_snapshot = newest_snapshot
        self._log = log
        self._node_id = node_id
        self._loop = loop
        self._io = io
        self._on_failure = on_failure
        self._feeds: list[_Feed] = []
        self._recent: deque[CommittedBatch] = deque()
        self._recent_bytes = 0
        self._high_watermark = -1
        self._leader = LeaderAndEpoch(None, 0)
        self._is_paused = False
        self._is_closed = False

    def add(self, listener: QuorumListener) -> None:
        """Begin to tell, soon and from the beginning."""
        feed = _Feed(listener)
        self._feeds.append(feed)
        self._continue_later(feed)

    def remember(self, batch: CommittedBatch) -> None:
        """This node wrote a batch at the log's end; if it is committed, it need not be read again."""
        size = sum(map(len, batch.frames))
        if self._recent_bytes + size <= RECENT_BYTES:
            self._recent.append(batch)
            self._recent_bytes += size

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """What was written in another epoch may be gone: only the log knows."""
        if leader != self._leader:
            self._leader = leader
            if leader.leader_id != self._node_id:
                self._forget_recent()
            for feed in list(self._feeds):
                self._guarded(partial(self._tell, feed))

    def on_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is committed."""
        self._high_watermark = offset
        for feed in list(self._feeds):
            self._pump(feed)
        while self._recent and self._recent[0].last_offset < offset:
            self._recent_bytes -= sum(map(len, self._recent.popleft().frames))

    def pause(self) -> None:
        """Leave the log alone: another thread cuts it."""
        self._is_paused = True
        self._forget_recent()

    def resume(self) -> None:
        self._is_paused = False
        for feed in list(self._feeds):
            self._pump(feed)

    def close(self) -> None:
        """Tell nobody anything any more."""
        self._is_closed = True
        self._forget_recent()

    # Moving a feed

    def _pump(self, feed: _Feed) -> None:
        if not feed.is_waiting:
            self._guarded(partial(self._move, feed))

    def _move(self, feed: _Feed) -> None:
        room = SLICE_RECORDS
        while feed.next_offset < self._high_watermark and not self._is_closed:
            if room <= 0:
                self._continue_later(feed)
                return
            told = self._hand_over(feed, room)
            room -= told
            if not told and not self._find_more(feed):
                return
        self._tell(feed)

    def _hand_over(self, feed: _Feed, room: int) -> int:
        """Tell of batches that are there, about `room` records; says of how many."""
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
        """Say where the next batches come from; whether they are there already."""
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
        """What is in memory and committed, if it begins at an offset; a gap ends it."""
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
            raise AssertionError(f"the log has nothing committed at {feed.next_offset} below {self._high_watermark}")
        feed.batches = _committed_batches(found.data)
        if found.cold:
            feed.is_waiting = True
            self._io.submit(partial(self._log.warm, found)).add_done_callback(partial(self._go_on, feed))
        return not found.cold

    def _load(self, feed: _Feed) -> bool:
        snapshot_id = self.newest_snapshot
        if snapshot_id is None:
            raise AssertionError(f"the log starts at {self._log.log_start_offset}, and there is no snapshot")
        feed.is_waiting = feed.is_loading = True
        loading = feed.listener.on_load_snapshot(snapshot_id, self._log.open_snapshot(snapshot_id))
        if loading is None:
            self._loaded(feed, snapshot_id)
        else:
            loading.add_done_callback(partial(self._go_on_loaded, feed, snapshot_id))
        return loading is None

    def _loaded(self, feed: _Feed, snapshot_id: SnapshotId) -> None:
        feed.next_offset, feed.last_epoch = snapshot_id.end_offset, snapshot_id.epoch
        feed.is_waiting = feed.is_loading = False

    # Waiting

    def _continue_later(self, feed: _Feed) -> None:
        feed.is_waiting = True
        self._loop.call_soon(partial(self._go_on, feed, None))

    def _go_on(self, feed: _Feed, done: "Future[None] | None") -> None:
        feed.is_waiting = False
        if done is None or self._succeeded(done):
            self._pump(feed)

    def _go_on_loaded(self, feed: _Feed, snapshot_id: SnapshotId, done: "Future[None]") -> None:
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

    def _guarded(self, action: Callable[[], None]) -> None:
        """A listener that cannot go on, or a log that cannot be read, ends the node: nothing is told twice."""
        if self._is_closed:
            return
        try:
            action()
        except Exception as error:  # noqa: BLE001  whatever it is, what follows must not be told
            self._on_failure(error)

    # The leader

    def _tell(self, feed: _Feed) -> None:
        leader, told = self._leader, feed.told
        if leader == told or feed.is_loading or self._is_closed:
            return
        if leader.leader_id == self._node_id and not self._has_seen_own_epoch(feed):
            return
        feed.told = leader
        if leader.leader_id is not None or (told is not None and told.leader_id is not None):
            feed.listener.on_leader_change(leader)

    def _has_seen_own_epoch(self, feed: _Feed) -> bool:
        return feed.last_epoch == self._leader.epoch and feed.next_offset >= self._high_watermark

    def _forget_recent(self) -> None:
        self._recent.clear()
        self._recent_bytes = 0


def _committed_batches(chunk: Buffer) -> Iterator[CommittedBatch]:
    """Decodes batch by batch, as they are asked for."""
    for position, header in iter_headers(chunk):
        yield _committed(chunk, position, header)


def _committed(chunk: Buffer, position: int, header: BatchHeader) -> CommittedBatch:
    frames = () if header.is_control else [record.value or b"" for record in iter_records(chunk, position)]
    return CommittedBatch(header.base_offset, header.last_offset, header.leader_epoch, header.max_timestamp, frames)
