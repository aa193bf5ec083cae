"""Cluster with one partition and remote storage, to execute KIP-405's scenarios.

All decisions are real: logs, retention, the choice and description of copies, remote metadata, lineages, fetchers, and
the start of followers after remote offsets. Disks, remote storage and the network are in memory.
"""

from asyncio import Future
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from broker.net.peer import SocketAddress
from broker.replication.epochs import EpochEnd, has_diverged
from broker.replication.fetch_plan import FetcherSettings, Sender
from broker.replication.fetcher import FetcherCore
from broker.runtime.remote_log.segment_source import RemoteSegmentSource
from broker.runtime.replication.fetch_transport import EpochEndsDone, FetchDone, OffsetsDone, Unanswered
from broker.runtime.replication.follower_replica import FollowerReplica
from broker.runtime.replication.replica_fetcher import ReplicaFetcher
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from protocol.primitives import Uuid
from storage.directories.checkpoints import LeaderEpochEntry
from storage.errors import OffsetMovedToTier, OffsetOutOfRange
from storage.log import Log
from storage.retention import delete_old_segments
from storage.tiered.catalog.lineage import claimed_remote_offset, covered_remote_offset, decode_epochs
from storage.tiered.lifecycle.copying import CopyBacklog, CopyLag, closed, describe, files_of, lineage_of, may_be_copied
from storage.tiered.remote_storage import IndexKind
from storage.tiered.segment_metadata import (
    RemoteSegment,
    RemoteSegmentId,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from tests.scenarios.tiered.broker import CONFIG, MAX_BYTES, NOW_MS, PRODUCER, TOPIC, TOPIC_ID, Broker
from tests.support.fakes.batches import iter_all_records
from tests.support.fakes.manual_loop import ManualLoop
from tests.support.fakes.memory_remote_metadata import MemoryRemoteMetadata, RemoteMetadataLog
from tests.support.fakes.memory_remote_storage import MemoryRemoteStorage
from tests.support.fakes.runtimes import make_runtime

PARTITION = TopicIdPartition(TOPIC_ID, TOPIC, 0)
ONE_WAY_S = 0.001
NEWS_WITHIN_S = 0.02
"""Maximum wait of a leader for data to respond with."""
SETTLED_MS = 100
"""Time in which a lagging follower catches up; one that cannot retries every few milliseconds."""
AT_ONCE = CopyLag(0, 0)

T = TypeVar("T")


class ScenarioCluster:
    """Brokers by name; remote segments are u1, u2, … in the order of their copies."""

    def __init__(self, names: Iterable[str]) -> None:
        self.loop = ManualLoop()
        self.storage = MemoryRemoteStorage()
        self.metadata = MemoryRemoteMetadata(RemoteMetadataLog(), make_future=self.loop.create_future)
        self.metadata.assign([], [PARTITION])
        self.brokers = {name: Broker(name, number, self.loop) for number, name in enumerate(names, 1)}
        self._tier = RemoteSegmentSource(self.metadata, self.storage, self, self.loop)
        self._fetchers: dict[str, ReplicaFetcher] = {}
        self._copies = 0

    # ---- the pool of RemoteSegmentSource: no threads

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        done: Future[T] = self.loop.create_future()
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001  it is the submitter's to handle, as with a thread
            done.set_exception(error)
        return done

    # ---- roles

    @property
    def leader(self) -> Broker:
        return next(broker for broker in self.brokers.values() if broker.is_leading)

    def lead(self, name: str, epoch: int) -> None:
        """Elect a leader, cleanly or not; the former leader stops leading."""
        for broker in self.brokers.values():
            broker.is_leading = False
        self.unfollow(name)
        self.brokers[name].lead(LeaderEpoch(epoch))
        self._commit()

    def follow(self, name: str) -> None:
        """Follow the leader, and catch up as far as possible."""
        self.unfollow(name)
        broker, leader = self.brokers[name], self.leader
        broker.follow(leader)
        core: FetcherCore[FollowerReplica] = FetcherCore(FetcherSettings())
        sender = Sender(BrokerId(broker.id), BrokerEpoch(1))
        fetcher = ReplicaFetcher(
            make_runtime(self.loop),
            leader.id,
            0,
            SocketAddress(leader.name, 9092),
            core,
            lambda: sender,
            self,
            self._tier,
        )
        self._fetchers[name] = fetcher
        fetcher.add(broker)
        self.settle()

    def unfollow(self, name: str) -> None:
        """Stop fetching."""
        fetcher = self._fetchers.pop(name, None)
        if fetcher is not None:
            fetcher.close()
        self.brokers[name].leader = None

    def stop(self, name: str) -> None:
        self.unfollow(name)
        self.brokers[name].stop()

    def crash(self, name: str, seed: int = 1) -> None:
        """Cut the power of a broker."""
        self.unfollow(name)
        self.brokers[name].lose_unflushed(seed)

    def settle(self) -> None:
        """Let followers fetch, and the leader advance the high watermark."""
        for _ in range(2):
            self.loop.advance(SETTLED_MS / 1000)
            self._commit()
        self.loop.advance(SETTLED_MS / 1000)
        assert not self.loop.failures, self.loop.failures

    def _commit(self) -> None:
        """Advance the high watermark; every follower counts as in sync. (Other tests cover the real rules.)"""
        leaders = [broker for broker in self.brokers.values() if broker.is_leading]
        for leader in leaders:
            followers = [broker for broker in self.brokers.values() if broker.leader is leader]
            ends = [broker.log.log_end_offset for broker in (leader, *followers)]
            leader.log.advance_high_watermark(min(ends))

    def write(self, values: Iterable[str], producer_id: int = PRODUCER) -> None:
        for value in values:
            self.leader.write(value, producer_id)
        self._commit()

    # ---- transport

    def connect(self, endpoint: SocketAddress, client_id: str) -> "Wire":
        return Wire(self, self.brokers[endpoint.host])

    # ---- remote storage

    def copied(self, log: Log) -> int:
        """Return the offset up to which remote storage holds all that has left the log's disk."""
        lineage = lineage_of(log)
        claimed = claimed_remote_offset(lineage, lambda epoch: self.metadata.highest_offset(PARTITION, epoch))
        segment_for = partial(self.metadata.segment_for, PARTITION)
        return covered_remote_offset(lineage, log.local_log_start_offset, claimed, segment_for)

    def upload(self, name: str) -> list[RemoteSegment]:
        """Copy all segments that may be copied, as a leader's task does."""
        broker = self.brokers[name]
        log = broker.log
        log.highest_remote_offset = self.copied(log)
        done: list[RemoteSegment] = []
        while True:
            backlog = CopyBacklog(log).at(log.highest_remote_offset)
            if not backlog.segments:
                return done
            local = backlog.segments[0]
            facts = closed(log, local, backlog)
            if not may_be_copied(facts, log.last_stable_offset, AT_ONCE, NOW_MS):
                return done
            self._copies += 1
            segment_id = RemoteSegmentId(PARTITION, Uuid(self._copies.to_bytes(16, "big")))
            segment = describe(log, local, facts, segment_id, broker_id=BrokerId(broker.id), now_ms=NOW_MS)
            self.metadata.add(segment)
            self.storage.copy_segment(segment, files_of(broker.fs, log, local, facts))
            self.metadata.update(SegmentUpdate(segment_id, SegmentState.COPY_FINISHED, NOW_MS, BrokerId(broker.id)))
            log.highest_remote_offset = max(log.highest_remote_offset, segment.end_offset)
            done.append(segment)

    def expire(self, name: str, offset: int) -> None:
        """Delete the broker's copied local segments below `offset`, like local retention.

        The log is flushed first, as a real one is at each roll.
        """
        self.brokers[name].flush()
        log = self.brokers[name].log
        log.highest_remote_offset = self.copied(log)
        kept = sum(segment.size for segment in log.segments if segment.base_offset >= offset)
        log.config = replace(CONFIG, local_retention_bytes=max(kept, 1), retention_bytes=-1)
        for expired in delete_old_segments(log, NOW_MS):
            for segment in expired.segments:
                segment.remove_files()
        log.config = CONFIG

    def segments(self) -> list[RemoteSegment]:
        """Return the finished segments by name."""
        known = self.metadata.segments(PARTITION)
        return sorted((each for each in known if each.state is SegmentState.COPY_FINISHED), key=lambda each: each.id.id)

    # ---- consumers

    def read(self, name: str, offset: int, last_epoch: int = -1) -> str:
        """Return the result of a consumer's read at `offset`, after a record of `last_epoch` unless -1 (KIP-320)."""
        log = self.brokers[name].log
        if last_epoch >= 0:
            end = EpochEnd(*log.end_offset_for_epoch(LeaderEpoch(last_epoch)))
            if has_diverged(LeaderEpoch(last_epoch), offset, end):
                return f"fenced: LE-{last_epoch} ends at {end.end_offset} of LE-{end.epoch}"
        try:
            data = log.read(offset, MAX_BYTES, log.high_watermark).data
        except OffsetMovedToTier:
            return self._read_remote(log, offset)
        except OffsetOutOfRange:
            return "out of range"
        return _record_at(bytes(data), offset, "the local log") or "no record"

    def _read_remote(self, log: Log, offset: int) -> str:
        lineage = lineage_of(log)
        epoch = lineage.epoch_for(offset)
        segment = None if epoch is None else self.metadata.segment_for(PARTITION, epoch, offset)
        if segment is None or lineage.agreed_end(segment) < offset:
            return "no segment"
        data = b"".join(self.storage.read_segment(segment, 0))
        return _record_at(data, offset, name_of(segment)) or "no record"

    def history_in(self, segment: RemoteSegment) -> list[tuple[int, int]]:
        """Return the leader epochs stored with a segment."""
        return [(each.epoch, each.start_offset) for each in self._epochs(segment)]

    def _epochs(self, segment: RemoteSegment) -> list[LeaderEpochEntry]:
        return decode_epochs(self.storage.read_index(segment, IndexKind.LEADER_EPOCH))


class Wire:
    """Implements LeaderConnection. A stopped broker does not respond."""

    def __init__(self, cluster: ScenarioCluster, leader: Broker) -> None:
        self._world = cluster
        self._leader = leader
        self._is_closed = False

    def fetch(self, request: FetchRequest, done: FetchDone) -> None:
        def answer() -> FetchResponse:
            return FetchResponse(
                responses=[
                    FetchableTopicResponse(
                        topic_id=topic.topic_id,
                        partitions=[self._leader.read_for_follower(each) for each in topic.partitions],
                    )
                    for topic in request.topics
                ]
            )

        self._send(answer, done)

    def list_offsets(self, request: ListOffsetsRequest, done: OffsetsDone) -> None:
        def answer() -> ListOffsetsResponse:
            return ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(topic.name, [self._leader.offset_for(each) for each in topic.partitions])
                    for topic in request.topics
                ]
            )

        self._send(answer, done)

    def epoch_ends(self, request: OffsetForLeaderEpochRequest, done: EpochEndsDone) -> None:
        def answer() -> OffsetForLeaderEpochResponse:
            return OffsetForLeaderEpochResponse(
                topics=[
                    OffsetForLeaderTopicResult(topic.topic, [self._leader.epoch_end(each) for each in topic.partitions])
                    for topic in request.topics
                ]
            )

        self._send(answer, done)

    def close(self) -> None:
        self._is_closed = True

    def _send(self, ask: Callable[[], T], done: Callable[[T | Unanswered], None]) -> None:
        def answer() -> T | Unanswered:
            return Unanswered("gone") if self._is_closed or not self._leader.is_running else ask()

        def arrive() -> None:
            found = answer()
            if isinstance(found, FetchResponse) and _is_idle(found):
                self._world.loop.call_later(NEWS_WITHIN_S, lambda: done(answer()))
            else:
                self._world.loop.call_later(ONE_WAY_S, lambda: done(found))

        self._world.loop.call_later(ONE_WAY_S, arrive)


def _is_idle(response: FetchResponse) -> bool:
    found = [each for topic in response.responses for each in topic.partitions]
    return not any(each.error_code or each.records or each.diverging_epoch.epoch >= 0 for each in found)


def name_of(segment: RemoteSegment) -> str:
    return f"u{int.from_bytes(segment.id.id, 'big')}"


def _record_at(data: bytes, offset: int, where: str) -> str | None:
    for header, record in iter_all_records(data):
        if record.offset == offset:
            return f"{(record.value or b'').decode()} of LE-{header.leader_epoch} from {where}"
    return None
