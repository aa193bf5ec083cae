"""Delivery of committed batches to listeners: order, source and chunk sizes."""

import asyncio
from collections.abc import Sequence

import pytest

from broker.quorum.identity import SnapshotId
from broker.runtime.quorum.listener_feeds import CHUNK_BYTES, RECENT_BYTES, SLICE_RECORDS, ListenerFeeds
from broker.runtime.quorum.quorum import CommittedBatch, RawSnapshotReader
from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer
from protocol.records.batch import iter_headers
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, control_batch
from storage.errors import CorruptBatch
from storage.local_log import LogSlice
from tests.broker.runtime.quorum.quorum_node import RecordingListener
from tests.support.fakes.inline_io import InlineIo
from tests.support.fakes.manual_loop import ManualLoop
from tests.support.fakes.runtimes import make_runtime
from tests.support.quorum_values import leader_and_epoch, make_snapshot_id

OWN_ID = 1
OTHER = leader_and_epoch(2, 5)
SELF = leader_and_epoch(OWN_ID, 5)


class FakeReader:
    """A snapshot reader without content."""

    size = 0

    def __init__(self) -> None:
        self.is_closed = False

    def next_chunk(self) -> bytes:
        return b""

    def close(self) -> None:
        self.is_closed = True


class FakeLog:
    """A log in memory that counts reads. `cold`: reads must be warmed first."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.end_offset = 0
        self.reads: list[int] = []
        self.warmed = 0
        self.is_cold = False
        self.opened: list[SnapshotId] = []
        self._batches: list[tuple[int, bytes]] = []

    def append(self, *values: bytes, epoch: int = 5) -> int:
        """Append a batch and return its end offset."""
        base = self.end_offset
        batch = build_batch(
            [Record(7, None, value) for value in values], base_offset=base, leader_epoch=LeaderEpoch(epoch)
        )
        return self._keep(base, batch, len(values))

    def append_control(self, epoch: int = 5) -> int:
        base = self.end_offset
        batch = control_batch([(ControlType.LEADER_CHANGE, b"")], 7, base_offset=base, leader_epoch=LeaderEpoch(epoch))
        return self._keep(base, batch, 1)

    def _keep(self, base: int, batch: bytes, count: int) -> int:
        self._batches.append((base, batch))
        self.end_offset += count
        return self.end_offset

    def rot(self, number: int, *, base_offset: int) -> None:
        """Change the base offset of a batch, as rot does."""
        base, batch = self._batches[number]
        self._batches[number] = base, base_offset.to_bytes(8, "big") + batch[8:]

    def read(self, offset: int, max_bytes: int, upper: int) -> LogSlice:
        self.reads.append(offset)
        found, size = list[Buffer](), 0
        for base, batch in self._batches:
            _, header = next(iter_headers(batch))
            if (
                base >= offset
                and base + header.last_offset_delta < upper
                and (not found or size + len(batch) <= max_bytes)
            ):
                found.append(batch)
                size += len(batch)
        return LogSlice(b"".join(found), upper, self.is_cold, 0, 0)

    def warm(self, found: LogSlice) -> None:
        self.warmed += 1

    def open_snapshot(self, snapshot_id: SnapshotId) -> RawSnapshotReader:
        self.opened.append(snapshot_id)
        return FakeReader()


class ListenerFeedsHarness:
    def __init__(self, newest_snapshot: SnapshotId | None = None) -> None:
        self.loop = ManualLoop()
        self.io = InlineIo(self.loop)
        self.log = FakeLog()
        self.failures: list[BaseException] = []
        self.feeds = ListenerFeeds(
            self.log,
            make_runtime(self.loop, io=self.io),
            node_id=OWN_ID,
            newest_snapshot=newest_snapshot,
            on_failure=self.failures.append,
        )

    def listen(self, listener: RecordingListener | None = None) -> RecordingListener:
        listener = listener or RecordingListener()
        self.feeds.add(listener)
        self.loop.run_soon()
        return listener

    def commit(self, offset: int | None = None) -> None:
        """Commit all batches, or the batches below an offset."""
        self.feeds.on_high_watermark(self.log.end_offset if offset is None else offset)

    def write(self, *values: bytes) -> None:
        """Append a batch as the leader does."""
        base = self.log.end_offset
        end = self.log.append(*values)
        self.feeds.remember(CommittedBatch(base, end - 1, LeaderEpoch(5), 7, values))


class TestReading:
    def test_uncommitted_batches_are_not_delivered(self) -> None:
        harness = ListenerFeedsHarness()
        listener = harness.listen()
        harness.log.append(b"a")
        harness.log.append(b"b")
        assert listener.events == []
        harness.commit(1)
        assert listener.frames == [b"a"]
        harness.commit(2)
        assert listener.events == ["0-0", "1-1"]

    def test_control_batch_is_delivered_without_records(self) -> None:
        harness = ListenerFeedsHarness()
        listener = harness.listen()
        harness.log.append_control()
        harness.commit()
        assert listener.events == ["0-0"]
        assert listener.frames == []

    def test_long_log_is_delivered_in_slices(self) -> None:
        harness = ListenerFeedsHarness()
        for _ in range(40):
            harness.log.append(*[b"r"] * 100)
        harness.commit()
        listener = RecordingListener()
        harness.feeds.add(listener)
        largest, seen = 0, 0
        while harness.loop._ready:
            harness.loop._ready.popleft()._run()
            now = len(listener.frames)
            largest, seen = max(largest, now - seen), now
        assert seen == 4_000
        assert largest <= SLICE_RECORDS + 100

    def test_commits_during_a_catch_up_are_delivered_afterwards(self) -> None:
        harness = ListenerFeedsHarness()
        for _ in range(20):
            harness.log.append(*[b"old"] * 100)
        harness.commit()
        listener = RecordingListener()
        harness.feeds.add(listener)
        harness.loop._ready.popleft()._run()
        harness.write(b"new")
        harness.commit()
        harness.loop.run_soon()
        assert listener.frames == [b"old"] * 2_000 + [b"new"]

    def test_read_chunks_are_bounded(self) -> None:
        harness = ListenerFeedsHarness()
        for _ in range(5):
            harness.log.append(bytes(CHUNK_BYTES // 2 - 200))
        harness.commit()
        listener = harness.listen()
        assert len(listener.frames) == 5
        assert harness.log.reads == [0, 2, 4]

    def test_cold_chunk_is_read_off_the_loop(self) -> None:
        harness = ListenerFeedsHarness()
        harness.log.is_cold = harness.io.is_held = True
        harness.log.append(b"a")
        harness.commit()
        listener = harness.listen()
        assert (listener.frames, harness.io.waiting) == ([], 1)
        harness.io.release()
        harness.loop.run_soon()
        assert (listener.frames, harness.log.warmed) == ([b"a"], 1)

    def test_gap_in_the_log_is_a_failure(self) -> None:
        harness = ListenerFeedsHarness()
        harness.listen()
        harness.commit(3)
        assert [type(each) for each in harness.failures] == [AssertionError]

    def test_rotten_base_offset_is_a_failure(self) -> None:
        harness = ListenerFeedsHarness()
        listener = harness.listen()
        harness.log.append(b"a")
        harness.log.append(b"b")
        harness.log.rot(1, base_offset=9)
        harness.commit()
        assert [type(each) for each in harness.failures] == [CorruptBatch]
        assert b"b" not in listener.frames

    def test_log_is_not_read_while_paused(self) -> None:
        harness = ListenerFeedsHarness()
        listener = harness.listen()
        harness.log.append(b"a")
        harness.feeds.pause()
        harness.commit()
        assert (listener.frames, harness.log.reads) == ([], [])
        harness.feeds.resume()
        assert listener.frames == [b"a"]


class TestOwnBatches:
    def test_own_batches_are_delivered_from_memory(self) -> None:
        harness = ListenerFeedsHarness()
        listeners = [harness.listen(), harness.listen()]
        harness.write(b"a", b"b")
        harness.write(b"c")
        harness.commit(2)
        harness.commit(3)
        for listener in listeners:
            assert listener.frames == [b"a", b"b", b"c"]
        assert harness.log.reads == []

    def test_control_batch_between_own_batches_is_read(self) -> None:
        harness = ListenerFeedsHarness()
        listener = harness.listen()
        harness.write(b"a")
        harness.log.append_control()
        harness.write(b"b")
        harness.commit()
        assert listener.events == ["0-0", "1-1", "2-2"]
        assert listener.frames == [b"a", b"b"]

    def test_memory_of_own_batches_is_bounded(self) -> None:
        harness = ListenerFeedsHarness()
        listener = harness.listen()
        harness.write(bytes(RECENT_BYTES - 1))
        harness.write(b"too", b"much")
        harness.commit()
        assert [len(frame) for frame in listener.frames] == [RECENT_BYTES - 1, 3, 4]
        assert harness.log.reads == [1]
        harness.write(b"again")
        harness.commit()
        assert harness.log.reads == [1]

    @pytest.mark.parametrize("how", ["deposed", "cut"])
    def test_own_batches_are_read_again_after_a_leader_change(self, how: str) -> None:
        harness = ListenerFeedsHarness()
        listener = harness.listen()
        harness.feeds.on_leader_change(SELF)
        harness.feeds.remember(CommittedBatch(0, 0, LeaderEpoch(5), 7, [b"lost"]))
        if how == "deposed":
            harness.feeds.on_leader_change(leader_and_epoch(2, 6))
        else:
            harness.feeds.pause()
            harness.feeds.resume()
        harness.log.append(b"kept", epoch=6)
        harness.commit()
        assert listener.frames == [b"kept"]


class TestLeaders:
    def test_other_leader_is_delivered_at_once(self) -> None:
        harness = ListenerFeedsHarness()
        listener = harness.listen()
        harness.feeds.on_leader_change(OTHER)
        assert listener.leaders == [OTHER]

    def test_own_leadership_is_delivered_after_a_commit_of_its_epoch(self) -> None:
        harness = ListenerFeedsHarness()
        listener = harness.listen()
        harness.log.append(b"old", epoch=4)
        harness.log.append_control(epoch=5)
        harness.feeds.on_leader_change(SELF)
        harness.commit(1)
        assert listener.events == ["0-0"]
        harness.commit(2)
        assert listener.events == ["0-0", "1-1", "leader 1 in 5"]

    def test_unknown_leader_is_not_delivered_twice(self) -> None:
        harness = ListenerFeedsHarness()
        listener = harness.listen()
        for epoch in (6, 7):
            harness.feeds.on_leader_change(leader_and_epoch(None, epoch))
        harness.feeds.on_leader_change(leader_and_epoch(2, 7))
        for epoch in (8, 9):
            harness.feeds.on_leader_change(leader_and_epoch(None, epoch))
        assert listener.leaders == [(2, 7), (None, 8)]

    def test_leadership_without_a_commit_is_not_delivered(self) -> None:
        harness = ListenerFeedsHarness()
        listener = harness.listen()
        harness.log.append_control(epoch=5)
        harness.feeds.on_leader_change(SELF)
        harness.feeds.on_leader_change(leader_and_epoch(2, 6))
        harness.commit()
        assert listener.leaders == [(2, 6)]

    def test_new_listener_gets_the_leader(self) -> None:
        harness = ListenerFeedsHarness()
        harness.log.append(b"a")
        harness.commit()
        harness.feeds.on_leader_change(OTHER)
        assert harness.listen().events == ["0-0", "leader 2 in 5"]


class LoadingListener(RecordingListener):
    """A listener whose snapshot load is asynchronous."""

    def __init__(self, loop: ManualLoop) -> None:
        super().__init__()
        self.loading: asyncio.Future[None] = loop.create_future()

    def on_load_snapshot(self, snapshot_id: SnapshotId, reader: RawSnapshotReader) -> "asyncio.Future[None]":
        super().on_load_snapshot(snapshot_id, reader)
        return self.loading


class TestSnapshots:
    def test_new_listener_starts_at_the_newest_snapshot(self) -> None:
        harness = ListenerFeedsHarness(make_snapshot_id(2, 4))
        for value in (b"a", b"b", b"c"):
            harness.log.append(value)
        harness.commit()
        listener = harness.listen()
        assert listener.events == ["snapshot 2-4", "2-2"]
        assert harness.log.opened == [make_snapshot_id(2, 4)]

    def test_listener_below_the_log_start_loads_a_snapshot(self) -> None:
        harness = ListenerFeedsHarness()
        listener = harness.listen()
        harness.log.append(b"a")
        harness.commit()
        for value in (b"b", b"c", b"d"):
            harness.log.append(value)
        harness.log.log_start_offset = 3
        harness.feeds.newest_snapshot = make_snapshot_id(3, 4)
        harness.commit()
        assert listener.events == ["0-0", "snapshot 3-4", "3-3"]

    def test_batches_wait_during_a_snapshot_load(self) -> None:
        harness = ListenerFeedsHarness(make_snapshot_id(1, 4))
        harness.log.append(b"a")
        harness.log.append(b"b")
        harness.commit()
        loading = LoadingListener(harness.loop)
        listener = harness.listen(loading)
        harness.feeds.on_leader_change(OTHER)
        harness.log.append(b"c")
        harness.commit()
        assert listener.events == ["snapshot 1-4"]
        loading.loading.set_result(None)
        harness.loop.run_soon()
        assert listener.events == ["snapshot 1-4", "1-1", "2-2", "leader 2 in 5"]

    def test_snapshot_of_the_own_epoch_allows_the_own_leadership(self) -> None:
        harness = ListenerFeedsHarness(make_snapshot_id(2, 5))
        harness.log.append_control()
        harness.log.append(b"b")
        harness.feeds.on_leader_change(SELF)
        harness.commit()
        assert harness.listen().events == ["snapshot 2-5", "leader 1 in 5"]

    def test_failed_snapshot_load_is_reported(self) -> None:
        harness = ListenerFeedsHarness(make_snapshot_id(1, 4))
        harness.log.append(b"a")
        harness.commit()
        loading = LoadingListener(harness.loop)
        harness.listen(loading)
        loading.loading.set_exception(ValueError("no snapshot"))
        harness.loop.run_soon()
        assert [str(each) for each in harness.failures] == ["no snapshot"]


class Unable(RecordingListener):
    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        raise ValueError("cannot apply")


class TestEnding:
    def test_listener_exception_is_reported_and_others_continue(self) -> None:
        harness = ListenerFeedsHarness()
        harness.listen(Unable())
        other = harness.listen()
        harness.log.append(b"a")
        harness.commit()
        assert [str(each) for each in harness.failures] == ["cannot apply"]
        assert other.frames == [b"a"]

    def test_closed_feed_delivers_nothing(self) -> None:
        harness = ListenerFeedsHarness()
        listener = harness.listen()
        harness.log.append(b"a")
        harness.feeds.close()
        harness.commit()
        harness.feeds.on_leader_change(OTHER)
        assert listener.events == []
