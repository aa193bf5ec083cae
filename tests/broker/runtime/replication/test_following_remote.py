"""A leader and a follower of a tiered topic with real logs, without network: remote-only records are not replicated."""

from typing import Any

import pytest

from broker.api.records.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from broker.replication.fetch_plan import FetcherSettings, Sender
from broker.replication.fetch_state import FetchPhase
from broker.runtime.remote_log.segment_source import RemoteSegmentSource
from broker.runtime.replication.replica_fetcher_manager import ReplicaFetcherManager
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from protocol.primitives import Uuid
from storage.config import LogConfig
from storage.log import Log
from storage.tiered.lifecycle.copying import CopyBacklog, closed, describe, files_of
from storage.tiered.segment_metadata import RemoteSegmentId, SegmentState, SegmentUpdate, TopicIdPartition
from tests.broker.runtime.replication.test_following import FOLLOWER, Pair
from tests.support.fakes.inline_io import InlineIo
from tests.support.fakes.memory_remote_metadata import MemoryRemoteMetadata
from tests.support.fakes.memory_remote_storage import MemoryRemoteStorage
from tests.support.fakes.runtimes import make_runtime
from tests.support.harnesses.data_plane import LISTENER, Answer, batch

TIERED = LogConfig(remote_storage_enable=True, index_interval_bytes=0)
PRODUCER = 77
NOW_MS = 1_700_000_000_000


class TieredPair(Pair):
    """A pair with a tiered topic and one producer. `pool` runs the reads of remote storage."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryRemoteStorage()
        self.metadata = MemoryRemoteMetadata(make_future=self.follower.loop.create_future)
        self.name = TopicIdPartition(self.identity, "t", 0)
        self.metadata.assign([], [self.name])
        self.pool = InlineIo(self.follower.loop)
        self.epoch_ends = OffsetForLeaderEpochHandler(self.leader.partitions)
        for plane in (self.leader, self.follower):
            plane.partition().configure(TIERED)
        self.fetchers = ReplicaFetcherManager(
            make_runtime(self.follower.loop, deadlines=self.follower.deadlines),
            self,
            self.follower.metadata,
            lambda: Sender(BrokerId(FOLLOWER), BrokerEpoch(1)),
            listener=LISTENER,
            settings=FetcherSettings(),
            fetcher_count=lambda: 1,
        )
        self.fetchers.use_remote_storage(
            RemoteSegmentSource(self.metadata, self.storage, self.pool, self.follower.loop)
        )
        self.fetchers.begin()

    def _answer(self, request: Any) -> Any:
        if not isinstance(request, OffsetForLeaderEpochRequest):
            return super()._answer(request)
        return Answer(self.epoch_ends(request, self.leader.context(4))).value

    @property
    def log(self) -> Log:
        return self.leader.partition().log

    @property
    def copy(self) -> Log:
        return self.follower.partition().log

    def write(self, count: int) -> None:
        """Append records, three per segment, and replicate them so that they are committed."""
        for _ in range(count):
            end = self.log.log_end_offset
            if end % 3 == 0:
                self.log.roll(NOW_MS)
            records = batch(b"%d" % end, producer_id=PRODUCER, producer_epoch=0, sequence=end)
            self.leader.partition().append(records, 1)
        self.serve()

    def leave_to_tier(self) -> None:
        """Copy all closed segments of the leader, and remove them from its local log."""
        log = self.log
        while (backlog := CopyBacklog(log).at(log.highest_remote_offset)).segments:
            local = backlog.segments[0]
            facts = closed(log, local, backlog)
            identity = RemoteSegmentId(self.name, Uuid(facts.base_offset.to_bytes(16, "big")))
            segment = describe(log, local, facts, identity, broker_id=BrokerId(1), now_ms=NOW_MS)
            self.storage.copy_segment(segment, files_of(self.leader.fs, log, local, facts))
            self.metadata.add(segment)
            self.metadata.update(SegmentUpdate(identity, SegmentState.COPY_FINISHED, NOW_MS, BrokerId(1)))
            log.highest_remote_offset = segment.end_offset
        log.detach_segments([segment for segment in log.segments if segment is not log.active_segment])

    def forget(self) -> None:
        """Empty the follower's log."""
        self.fetchers.unfollow(self.follower.partition().follower)
        self.serve()
        self.copy.truncate_fully_and_start_at(0, now_ms=NOW_MS)

    def assert_alike(self) -> None:
        log, copy = self.log, self.copy
        assert (copy.log_start_offset, copy.log_end_offset) == (log.log_start_offset, log.log_end_offset)
        assert copy.local_log_start_offset == log.local_log_start_offset
        assert copy.epochs.entries == log.epochs.entries
        assert copy.high_watermark == log.high_watermark
        assert copy.producers.encode() == log.producers.encode()
        assert _stored(copy) == _stored(log)


def _stored(log: Log) -> bytes:
    return b"".join(segment.file.read(0, segment.size) for segment in log.segments)


@pytest.fixture
def pair() -> TieredPair:
    """A pair with seven records in epochs 0 and 1, six of them remote; the follower has lost all of them."""
    pair = TieredPair()
    pair.follow()
    pair.write(4)
    pair.begin_epoch()
    pair.follow()
    pair.write(3)
    pair.leave_to_tier()
    pair.forget()
    return pair


def test_empty_follower_starts_at_the_leaders_local_log_start(pair: TieredPair) -> None:
    pair.follow()
    pair.assert_alike()
    assert pair.copy.local_log_start_offset == 6
    assert [entry.epoch for entry in pair.copy.epochs.entries] == [0, 1]
    assert pair.phase is FetchPhase.FETCHING
    assert pair.leader.partition().isr_updater.is_in_sync(BrokerId(FOLLOWER))


def test_follower_continues_after_the_build(pair: TieredPair) -> None:
    pair.follow()
    pair.write(5)
    pair.assert_alike()


def test_built_replica_serves_its_own_followers(pair: TieredPair) -> None:
    """As a leader, the replica has the former leader's producer state: it detects a retry."""
    pair.follow()
    pair.begin_epoch(leads=False)
    records = batch(b"6", producer_id=PRODUCER, producer_epoch=0, sequence=6)
    assert pair.follower.partition().append(records, 1).duplicate
    assert pair.follower.partition().follower.local_start_offset == 6


def test_follower_far_behind_drops_its_records(pair: TieredPair) -> None:
    pair.copy.append_as_follower(bytes(pair.storage.segments[Uuid(bytes(16))].log), now_ms=NOW_MS)
    assert pair.copy.log_end_offset == 3
    pair.follow()
    pair.assert_alike()


def test_build_waits_for_remote_metadata(pair: TieredPair) -> None:
    pair.metadata.not_ready.add(pair.name)
    pair.follow()
    assert (pair.copy.log_end_offset, pair.phase) == (0, FetchPhase.DELAYED)
    pair.metadata.become_ready(pair.name)
    pair.follower.advance_ms(1000)
    pair.serve()
    pair.assert_alike()


def test_new_leader_epoch_during_a_remote_read_ends_the_attempt(pair: TieredPair) -> None:
    pair.pool.is_held = True
    pair.follow()
    assert pair.phase is FetchPhase.BUILDING
    pair.begin_epoch(leads=False)
    pair.pool.release()
    pair.serve()
    assert pair.follower.partition().is_leader
    assert (pair.copy.log_start_offset, pair.copy.log_end_offset) == (0, 0)


def test_new_leader_epoch_during_the_restart_begins_with_the_restarted_log(pair: TieredPair) -> None:
    pair.follower.io.is_held = True
    pair.follow()
    partition = pair.follower.partition()
    assert partition.truncation.is_under_way
    pair.begin_epoch(leads=False)
    assert pair.follower.partition().leader_id == FOLLOWER
    pair.follower.io.release()
    pair.serve()
    assert partition.is_leader
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (0, 6)
    assert [entry.epoch for entry in partition.log.epochs.entries] == [0, 1, 2]


def test_readers_see_offsets_valid_before_and_after_the_restart(pair: TieredPair) -> None:
    pair.follower.io.is_held = True
    pair.follow()
    marks = pair.follower.partition().truncation.offsets
    assert marks is not None
    assert (marks.log_start_offset, marks.high_watermark) == (0, 0)


def test_topic_not_known_as_tiered_is_unchanged(pair: TieredPair) -> None:
    pair.follower.partition().configure(LogConfig())
    pair.follow()
    assert (pair.copy.log_end_offset, pair.phase) == (0, FetchPhase.DELAYED)


def test_failing_log_directory_goes_offline_during_the_build(pair: TieredPair) -> None:
    pair.follower.memory.fail("sync", path_part=".snapshot")
    pair.follow()
    assert pair.phase is FetchPhase.FAILED
    assert not pair.follower.log_dirs.online


def test_records_deleted_within_a_segment_stay_deleted(pair: TieredPair) -> None:
    pair.leader.partition().record_deletion.delete_records(4)
    pair.follow()
    pair.assert_alike()
    assert pair.copy.log_start_offset == 4
    assert [tuple(entry) for entry in pair.copy.epochs.entries] == [(1, 4)]
