"""A harness for replica fetchers: real fetchers, fake leaders, logs of numbers, a simulated network and clock.

A record consists of its offset and leader epoch, 12 bytes; a log is a list of records. Leaders follow the rules of
Fetch, with the broker's own sessions, and return the errors that a test sets. Messages take a millisecond. `say`
receives a line for every event.
"""

import struct
from asyncio import Future
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.api.serving.fetch_parsing import reader_of, session_request
from broker.fetch.sessions import FetchSessions, OpenFetch, SessionRefused
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import Provenance
from broker.metadata.image.records import MetadataRecord
from broker.metrics.topics import TopicMeters
from broker.net.peer import SocketAddress
from broker.replication.epochs import EpochEnd
from broker.replication.fetch_plan import FetcherSettings, Sender
from broker.replication.fetch_state import FetchPhase, FetchPosition
from broker.replication.remote_log_aux_state_machine import EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD
from broker.runtime.controller.metadata_cache import MetadataCache
from broker.runtime.partitions.hosted_follower import FetchedOutOfOrder
from broker.runtime.partitions.reads import FetchTarget, LogReadResult
from broker.runtime.replication.fetch_transport import EpochEndsDone, FetchDone, OffsetsDone, Unanswered
from broker.runtime.replication.replica_fetcher_manager import ReplicaFetcherManager
from broker.runtime.replication.throttles import ReplicationThrottles
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.metadata_records import BrokerEndpoint, ConfigRecord, RegisterBrokerRecord
from protocol.messages.offset_for_leader_epoch import EpochEndOffset as EpochEndAnswer
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from protocol.primitives import Buffer, Uuid
from storage.remote_log_start import RemoteLogStart
from tests.support.fakes.fake_remote_log import FakeRemoteLog
from tests.support.fakes.manual_loop import ManualLoop
from tests.support.fakes.runtimes import make_runtime

Say = Callable[[str], None]
RECORD = struct.Struct(">qi")
FETCH_VERSION = 17
ONE_WAY_S = 0.001
OFFSET_NAMES = {
    -1: "LATEST",
    -2: "EARLIEST",
    EARLIEST_LOCAL: "EARLIEST_LOCAL",
    EARLIEST_PENDING_UPLOAD: "EARLIEST_PENDING_UPLOAD",
}


class Entry(NamedTuple):
    """A record: its offset and leader epoch."""

    offset: int
    epoch: int


def encode(entries: Iterable[Entry]) -> bytes:
    return b"".join(RECORD.pack(*entry) for entry in entries)


def topic_id(topic: str) -> Uuid:
    return Uuid(topic.encode().rjust(16, b"\0"))


@dataclass(slots=True)
class NumberLog:
    """The log of a leader's or follower's replica. `epochs` lists (epoch, first offset).

    Below `first_local`, records are in remote storage alone.
    """

    entries: list[Entry] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    start: int = 0
    first_local: int = 0
    end: int = 0
    high_watermark: int = 0

    def append(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if not self.epochs or self.epochs[-1][0] != entry.epoch:
                self.epochs.append((entry.epoch, entry.offset))
            self.entries.append(entry)
            self.end = entry.offset + 1

    def begin_epoch(self, epoch: int) -> None:
        self.epochs.append((epoch, self.end))

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def end_of(self, epoch: int) -> EpochEnd:
        if epoch == -1 or epoch > self.last_epoch:
            return EpochEnd(LeaderEpoch(-1), -1)
        if epoch == self.last_epoch:
            return EpochEnd(LeaderEpoch(epoch), self.end)
        following = bisect_left(self.epochs, (epoch + 1, -1))
        if following == 0:
            return EpochEnd(LeaderEpoch(epoch), self.epochs[0][1])
        return EpochEnd(LeaderEpoch(self.epochs[following - 1][0]), self.epochs[following][1])

    def truncate(self, offset: int) -> None:
        self.entries = [entry for entry in self.entries if entry.offset < offset]
        self.end = min(self.end, offset)
        self.epochs = [each for each in self.epochs if each[1] < self.end]
        self.high_watermark = min(self.high_watermark, self.end)

    @property
    def local_start(self) -> int:
        return max(self.start, self.first_local)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of an offset; -1 before the first known epoch."""
        return next((epoch for epoch, begin in reversed(self.epochs) if begin <= offset), -1)

    def restart(self, offset: int) -> None:
        self.entries, self.epochs = [], []
        self.start = self.end = self.high_watermark = self.first_local = offset

    def restart_behind_remote_log(self, start: RemoteLogStart) -> None:
        self.restart(start.next_offset)
        self.start = start.log_start_offset
        self.epochs = [(epoch, begin) for epoch, begin in start.epochs]

    def leave_to_tier(self, offset: int) -> None:
        """Delete local records below an offset; they are remote only."""
        self.first_local = offset
        self.entries = [entry for entry in self.entries if entry.offset >= offset]

    def trim(self, offset: int) -> None:
        """Raise the log start offset."""
        self.start = offset
        self.entries = [entry for entry in self.entries if entry.offset >= offset]
        gone = [each for each in self.epochs if each[1] <= offset]
        self.epochs = [(gone[-1][0], offset), *self.epochs[len(gone) :]] if gone else self.epochs

    def describe(self) -> str:
        runs = [f"{epoch} from {begin}" for epoch, begin in self.epochs]
        remote = f" (local from {self.local_start})" if self.local_start > self.start else ""
        epochs = ", ".join(runs) or "none"
        return f"{self.start}{remote} to {self.end}, high watermark {self.high_watermark}, epochs {epochs}"


class FakeReplica:
    """A FollowerReplica. A truncation takes `truncation_s`; the next append raises `fault`."""

    def __init__(self, topic: str, index: int, loop: ManualLoop, say: Say) -> None:
        self.topic = topic
        self.topic_id = topic_id(topic)
        self.index = index
        self.leader_id: int | None = None
        self.leader_epoch = LeaderEpoch(-1)
        self.is_following = False
        self.traffic = TopicMeters()
        self.log = NumberLog()
        self.truncation_s = 0.0
        self.fault: Exception | None = None
        self.refuses_cuts = False
        self.is_flushed = True
        self.on_flushed: list[Callable[[], None]] = []
        self._loop = loop
        self._say = say

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    def become_follower(self, leader_id: int, epoch: LeaderEpoch) -> None:
        self.leader_id, self.leader_epoch, self.is_following = leader_id, epoch, True

    def fetch_position(self) -> FetchPosition:
        return FetchPosition(self.log.end, LeaderEpoch(self.log.last_epoch), self.log.start)

    def when_flushed(self, callback: Callable[[], None]) -> None:
        self.on_flushed.append(callback)

    @property
    def local_start_offset(self) -> int:
        return self.log.local_start

    def end_for_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        return self.log.end_of(epoch)

    def append_fetched(
        self,
        leader_epoch: LeaderEpoch,
        offset: int,
        records: Buffer,
        leader_high_watermark: int,
        leader_log_start_offset: int,
    ) -> bool:
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        if leader_epoch != self.leader_epoch or offset != self.log.end:
            return False
        entries = [Entry(*fields) for fields in RECORD.iter_unpack(records)]
        if entries and entries[0].offset < self.log.end:
            raise FetchedOutOfOrder(f"{self}: {entries[0].offset} comes after {self.log.end}")
        self.log.append(entries)
        before = self.log.high_watermark
        self.log.high_watermark = max(self.log.local_start, min(leader_high_watermark, self.log.end))
        if entries:
            self._say(f"{self} appends {entries[0].offset} to {entries[-1].offset}")
        if self.log.high_watermark != before:
            self._say(f"{self} advances its high watermark to {self.log.high_watermark}")
        if leader_log_start_offset > self.log.start:
            self.log.trim(min(leader_log_start_offset, self.log.high_watermark))
            self._say(f"{self} raises its log start offset to {self.log.start}")
        return True

    def truncate(self, leader_epoch: LeaderEpoch, offset: int) -> "Future[bool]":
        return self._truncate_later(leader_epoch, f"truncates to {offset}", lambda: self.log.truncate(offset))

    def truncate_fully_and_start_at(self, leader_epoch: LeaderEpoch, offset: int) -> "Future[bool]":
        return self._truncate_later(
            leader_epoch, f"truncates fully and starts at {offset}", lambda: self.log.restart(offset)
        )

    def start_behind_remote_log(self, leader_epoch: LeaderEpoch, start: RemoteLogStart) -> "Future[bool]":
        words = f"starts after its remote records, at {start.next_offset}"
        return self._truncate_later(leader_epoch, words, lambda: self.log.restart_behind_remote_log(start))

    def _truncate_later(self, leader_epoch: LeaderEpoch, words: str, action: Callable[[], None]) -> "Future[bool]":
        future: Future[bool] = self._loop.create_future()

        def finish() -> None:
            if self.fault is not None:
                fault, self.fault = self.fault, None
                future.set_exception(fault)
            elif leader_epoch != self.leader_epoch or self.refuses_cuts:
                future.set_result(False)
            else:
                action()
                self._say(f"{self} {words}")
                future.set_result(True)

        self._loop.call_later(self.truncation_s, finish)
        return future


@dataclass(slots=True)
class LedPartition:
    """A partition of a fake leader.

    `refusals` are the errors of the next reads. `pending_upload` is the first offset that is not remote, -1 if the
    leader does not know it, None if the leader does not support the request.
    """

    log: NumberLog
    epoch: int
    pending_upload: int | None = None
    refusals: list[ErrorCode] = field(default_factory=list)
    diverging_ends: list[EpochEnd] = field(default_factory=list)
    stale_records: list[bytes] = field(default_factory=list)


class _Parked(NamedTuple):
    opened: OpenFetch
    request: FetchRequest
    answer: Callable[[FetchResponse], object]


class FakeLeader:
    """Answers fetches like a broker, at once or when there are records."""

    def __init__(self, broker_id: int, loop: ManualLoop, *, session_slots: int = 100) -> None:
        self.id = broker_id
        self.endpoint = SocketAddress(f"broker-{broker_id}", 9092)
        self.partitions: dict[tuple[Uuid, int], LedPartition] = {}
        self.names: dict[Uuid, str] = {}
        self.sessions = FetchSessions(session_slots, self._pick_id)
        self.top_level_errors: list[ErrorCode] = []
        self.response_max_records = 1000
        self._loop = loop
        self._next_id = 100
        self._parked: list[_Parked] = []

    def _pick_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def lead(self, topic: str, index: int, epoch: int) -> LedPartition:
        key = (topic_id(topic), index)
        self.names[key[0]] = topic
        led = self.partitions.setdefault(key, LedPartition(NumberLog(), epoch))
        led.epoch = epoch
        led.log.begin_epoch(epoch)
        return led

    def partition(self, topic: str, index: int) -> LedPartition:
        return self.partitions[topic_id(topic), index]

    def write(self, topic: str, index: int, record_count: int) -> None:
        led = self.partition(topic, index)
        end = led.log.end
        led.log.append(Entry(end + each, led.epoch) for each in range(record_count))
        self.look_again()

    def fetch(self, request: FetchRequest, answer: Callable[[FetchResponse], object]) -> None:
        if self.top_level_errors:
            answer(FetchResponse(error_code=self.top_level_errors.pop(0)))
            return
        opened = self.sessions.open(
            session_request(request, FETCH_VERSION, reader_of(request, FETCH_VERSION)), round(self._loop.time() * 1000)
        )
        if isinstance(opened, SessionRefused):
            answer(FetchResponse(error_code=opened.error))
            return
        parked = _Parked(opened, request, answer)
        self._parked.append(parked)
        self._try(parked, is_late=request.max_wait_ms <= 0)
        if parked in self._parked:
            self._loop.call_later(request.max_wait_ms / 1000, lambda: self._try(parked, is_late=True))

    def look_again(self) -> None:
        for parked in tuple(self._parked):
            self._try(parked, is_late=False)

    def _try(self, parked: _Parked, *, is_late: bool) -> None:
        if parked not in self._parked:
            return
        targets = parked.opened.targets.all()
        results: dict[FetchTarget, LogReadResult] = {}
        room = self.response_max_records
        for target in targets:
            results[target] = self._read(target, room)
            room -= results[target].size_bytes // RECORD.size
        is_urgent = any(each.size_bytes or each.is_urgent for each in results.values())
        if is_urgent or is_late or not targets:
            self._parked.remove(parked)
            parked.answer(self._response(parked.opened, results))

    def _read(self, target: FetchTarget, room: int) -> LogReadResult:
        led = self.partitions.get((target.topic_id, target.index))
        if led is None:
            return LogReadResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if led.refusals:
            return LogReadResult(led.refusals.pop(0))
        if target.current_leader_epoch != led.epoch:
            fenced = target.current_leader_epoch < led.epoch
            return LogReadResult(ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH)
        log = led.log
        result = LogReadResult(ErrorCode.NONE, log.high_watermark, log.high_watermark, log.start)
        if led.diverging_ends:
            result.diverging = led.diverging_ends.pop(0)
            return result
        if target.last_fetched_epoch >= 0:
            end = log.end_of(target.last_fetched_epoch)
            if not end.is_known or target.fetch_offset < log.start:
                return LogReadResult(ErrorCode.OFFSET_OUT_OF_RANGE)
            if end.epoch < target.last_fetched_epoch or end.end_offset < target.fetch_offset:
                result.diverging = end
                return result
        if not log.start <= target.fetch_offset <= log.end:
            return LogReadResult(ErrorCode.OFFSET_OUT_OF_RANGE)
        if target.fetch_offset < log.local_start:
            result.error = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
            return result
        if led.stale_records:
            result.records = led.stale_records.pop(0)
        else:
            found = [entry for entry in log.entries if entry.offset >= target.fetch_offset]
            result.records = encode(found[: max(0, room)])
        result.size_bytes = len(result.records)
        return result

    def _response(self, opened: OpenFetch, results: dict[FetchTarget, LogReadResult]) -> FetchResponse:
        settled = opened.answer(results, round(self._loop.time() * 1000))
        response = FetchResponse(error_code=settled.error, session_id=settled.session_id)
        for target in settled.listed:
            result = results[target]
            data = PartitionData(
                target.index, result.error, result.high_watermark, -1, result.log_start_offset, records=result.records
            )
            if result.diverging is not None:
                data.diverging_epoch = EpochEndOffset(result.diverging.epoch, result.diverging.end_offset)
            response.responses.append(FetchableTopicResponse(topic_id=target.topic_id, partitions=[data]))
        return response

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(topic.name, [self._bound(topic.name, each) for each in topic.partitions])
                for topic in request.topics
            ]
        )

    def _bound(self, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        led = self.partitions.get((topic_id(topic), asked.partition_index))
        if led is None:
            return ListOffsetsPartitionResponse(asked.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if asked.current_leader_epoch != led.epoch:
            return ListOffsetsPartitionResponse(asked.partition_index, ErrorCode.FENCED_LEADER_EPOCH)
        log = led.log
        if asked.timestamp == EARLIEST_PENDING_UPLOAD and led.pending_upload is None:
            return ListOffsetsPartitionResponse(asked.partition_index, ErrorCode.UNSUPPORTED_VERSION)
        offsets = {-1: log.end, -2: log.start, EARLIEST_LOCAL: log.local_start}
        offset = offsets.get(asked.timestamp, -1 if led.pending_upload is None else led.pending_upload)
        return ListOffsetsPartitionResponse(
            asked.partition_index, offset=offset, leader_epoch=-1 if offset < 0 else log.epoch_at(offset)
        )

    def epoch_ends(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic.topic, [self._epoch_end(topic.topic, each) for each in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _epoch_end(self, topic: str, asked: OffsetForLeaderPartition) -> EpochEndAnswer:
        led = self.partitions[topic_id(topic), asked.partition]
        if asked.current_leader_epoch != led.epoch:
            return EpochEndAnswer(ErrorCode.FENCED_LEADER_EPOCH, asked.partition)
        end = led.log.end_of(asked.leader_epoch)
        return EpochEndAnswer(0, asked.partition, end.epoch, end.end_offset)


class InMemoryFetchTransport:
    """Implements FetchTransport over fake leaders. Requests to addresses in `down` fail after a millisecond."""

    def __init__(self, loop: ManualLoop, say: Say) -> None:
        self.loop = loop
        self.say = say
        self.leaders: dict[SocketAddress, FakeLeader] = {}
        self.down: set[SocketAddress] = set()
        self.connections: list[InMemoryFetchConnection] = []

    def add(self, leader: FakeLeader) -> None:
        self.leaders[leader.endpoint] = leader

    def connect(self, endpoint: SocketAddress, client_id: str) -> "InMemoryFetchConnection":
        same = [each for each in self.connections if each.client_id == client_id and each.endpoint == endpoint]
        has_one = any(not each.is_closed for each in same)
        connection = InMemoryFetchConnection(self, endpoint, client_id, "separate " if has_one else "")
        self.connections.append(connection)
        return connection

    @property
    def open_count(self) -> int:
        return sum(not each.is_closed for each in self.connections)


class InMemoryFetchConnection:
    """One connection; the leader handles its requests one after another."""

    def __init__(self, transport: InMemoryFetchTransport, endpoint: SocketAddress, client_id: str, lane: str) -> None:
        self.endpoint = endpoint
        self.client_id = client_id
        self.is_closed = False
        self._transport = transport
        self._lane = lane
        self._open: dict[int, Callable[[Unanswered], object]] = {}
        self._next = 0

    def fetch(self, request: FetchRequest, done: FetchDone) -> None:
        say, names = self._transport.say, self._names()
        say(f"-> {self._to} {self._lane}{describe_request(request, names)}")

        def report(response: FetchResponse | Unanswered) -> None:
            say(f"{self._to} -> {self._lane}{describe_response(response, names)}")
            done(response)

        self._send(lambda leader, answer: leader.fetch(request, answer), report)

    def list_offsets(self, request: ListOffsetsRequest, done: OffsetsDone) -> None:
        which = OFFSET_NAMES[request.topics[0].partitions[0].timestamp]
        asked = " ".join(f"{t.name}-{p.partition_index}" for t in request.topics for p in t.partitions)
        self._transport.say(f"-> {self._to} ListOffsets {which}: {asked}")
        self._send(lambda leader, answer: answer(leader.list_offsets(request)), done)

    def epoch_ends(self, request: OffsetForLeaderEpochRequest, done: EpochEndsDone) -> None:
        asked = " ".join(f"{p.leader_epoch} of {t.topic}-{p.partition}" for t in request.topics for p in t.partitions)
        self._transport.say(f"-> {self._to} OffsetForLeaderEpoch: epoch {asked}")
        self._send(lambda leader, answer: answer(leader.epoch_ends(request)), done)

    def close(self) -> None:
        self.is_closed = True
        waiting, self._open = self._open, {}
        for fail in waiting.values():
            fail(Unanswered("the connection is closed"))

    @property
    def _to(self) -> str:
        return self.endpoint.host.removeprefix("broker-")

    def _names(self) -> dict[Uuid, str]:
        leader = self._transport.leaders.get(self.endpoint)
        return {} if leader is None else leader.names

    def _send(self, ask: Callable[[FakeLeader, Callable[..., object]], object], done: Callable[..., object]) -> None:
        transport, loop = self._transport, self._transport.loop
        self._next += 1
        serial = self._next
        self._open[serial] = lambda outcome: loop.call_soon(lambda: done(outcome))

        def settle(outcome: object) -> None:
            if self._open.pop(serial, None) is not None:
                done(outcome)

        def arrive() -> None:
            leader = transport.leaders.get(self.endpoint)
            if leader is None or self.endpoint in transport.down:
                settle(Unanswered("the leader is unreachable"))
            elif serial in self._open:
                ask(leader, lambda response: loop.call_later(ONE_WAY_S, lambda: settle(response)))

        loop.call_later(ONE_WAY_S, arrive)


class FollowerHarness:
    """Follower broker 9 and its leaders. Replicas are named like `t-0`."""

    BROKER_ID = 9

    def __init__(
        self, say: Say = lambda _line: None, settings: FetcherSettings | None = None, *, is_tiering: bool = True
    ) -> None:
        self.say = say
        self.loop = ManualLoop()
        self.transport = InMemoryFetchTransport(self.loop, say)
        self.metadata = MetadataCache()
        self.throttles = ReplicationThrottles(self.BROKER_ID)
        self.leaders: dict[int, FakeLeader] = {}
        self.replicas: dict[str, FakeReplica] = {}
        self.tier = FakeRemoteLog(self.loop, say)
        self.fetchers = ReplicaFetcherManager(
            make_runtime(self.loop),
            self.transport,
            self.metadata,
            lambda: Sender(BrokerId(self.BROKER_ID), BrokerEpoch(90)),
            listener="INTERNAL",
            settings=settings or FetcherSettings(),
            fetcher_count=self._fetcher_count,
            quota=self.throttles.follower,
        )
        if is_tiering:
            self.fetchers.use_remote_storage(self.tier)
        self.fetchers.begin()

    def _fetcher_count(self) -> int:
        return int(self.metadata.image.configs.cluster_default().get("num.replica.fetchers", "1"))

    # Metadata

    def leader(self, broker_id: int, *, session_slots: int = 100) -> FakeLeader:
        """Add a registered leader."""
        leader = self.leaders[broker_id] = FakeLeader(broker_id, self.loop, session_slots=session_slots)
        self.transport.add(leader)
        self.register(leader)
        return leader

    def register(self, leader: FakeLeader) -> None:
        host, port = leader.endpoint
        endpoints = [BrokerEndpoint(name="INTERNAL", host=host, port=port)]
        self.publish(RegisterBrokerRecord(broker_id=leader.id, broker_epoch=1, end_points=endpoints))

    def move(self, broker_id: int) -> None:
        """Restart a leader on another port, and publish its new address."""
        leader = self.leaders[broker_id]
        del self.transport.leaders[leader.endpoint]
        leader.endpoint = SocketAddress(leader.endpoint.host, leader.endpoint.port + 1)
        self.transport.add(leader)
        self.register(leader)
        for replica in self.replicas.values():
            if replica.leader_id == broker_id:
                self.fetchers.follow(replica)

    def configure(self, resource_type: ResourceType, resource: str, key: str, value: str | None) -> None:
        self.publish(ConfigRecord(resource_type=resource_type, resource_name=resource, name=key, value=value))

    def publish(self, record: MetadataRecord) -> None:
        delta = MetadataDelta(self.metadata.image)
        delta.replay(record)
        image = delta.apply(Provenance())
        self.metadata.on_metadata(delta, image)
        self.throttles.on_metadata(delta, image)
        self.fetchers.on_metadata(delta, image)

    # Replicas

    def replica(self, name: str) -> FakeReplica:
        if name not in self.replicas:
            topic, _, index = name.rpartition("-")
            self.replicas[name] = FakeReplica(topic, int(index), self.loop, self.say)
        return self.replicas[name]

    def follow(self, name: str, leader_id: int, epoch: int) -> FakeReplica:
        replica = self.replica(name)
        replica.become_follower(leader_id, LeaderEpoch(epoch))
        self.fetchers.follow(replica)
        return replica

    def unfollow(self, name: str) -> None:
        replica = self.replica(name)
        replica.is_following = False
        self.fetchers.unfollow(replica)

    def led(self, broker_id: int, name: str) -> LedPartition:
        topic, _, index = name.rpartition("-")
        return self.leaders[broker_id].partition(topic, int(index))

    def lead(self, broker_id: int, name: str, epoch: int) -> LedPartition:
        topic, _, index = name.rpartition("-")
        return self.leaders[broker_id].lead(topic, int(index), epoch)

    def write(self, broker_id: int, name: str, record_count: int) -> None:
        topic, _, index = name.rpartition("-")
        self.leaders[broker_id].write(topic, int(index), record_count)

    def phase(self, name: str) -> FetchPhase | None:
        """Return the fetch phase of a replica; None if no fetcher has it."""
        replica = self.replicas[name]
        members = [each for fetcher in self.fetchers.fetchers() for each in fetcher.core.replicas.all()]
        return next((each.phase for each in members if each.partition is replica), None)

    def advance(self, milliseconds: float) -> None:
        self.loop.advance(milliseconds / 1000)
        assert not self.loop.failures, self.loop.failures


def fill(log: NumberLog, runs: Iterable[tuple[int, int]]) -> None:
    """Append (epoch, number of records) in order."""
    for epoch, record_count in runs:
        if record_count:
            end = log.end
            log.append(Entry(end + each, epoch) for each in range(record_count))
        else:
            log.begin_epoch(epoch)


def describe_request(request: FetchRequest, names: dict[Uuid, str]) -> str:
    """Describe a request, such as `Fetch, session 101/3: t-0 from 5 after epoch 2 (leader epoch 3), forgotten t-1`."""
    if request.session_epoch == -1:
        session = f"no session, {request.max_wait_ms} ms"
    elif request.session_epoch == 0:
        session = f"new session{f' for {request.session_id}' if request.session_id else ''}"
    else:
        session = f"session {request.session_id}/{request.session_epoch}"
    asked = [
        f"{names.get(topic.topic_id, '?')}-{each.partition} from {each.fetch_offset}"
        f" after epoch {each.last_fetched_epoch} (leader epoch {each.current_leader_epoch})"
        for topic in request.topics
        for each in topic.partitions
    ]
    left = [f"{names.get(t.topic_id, '?')}-{index}" for t in request.forgotten_topics_data for index in t.partitions]
    words = ", ".join(asked + ([f"forgotten {' '.join(left)}"] if left else []))
    return f"Fetch, {session}: {words or 'no changes'}"


def describe_response(response: FetchResponse | Unanswered, names: dict[Uuid, str]) -> str:
    """Describe a response, such as `session 101: t-0 3 records, high watermark 5`."""
    if isinstance(response, Unanswered):
        return f"no response: {response.reason}"
    if response.error_code:
        return ErrorCode(response.error_code).name
    session = f"session {response.session_id}" if response.session_id else "no session"
    listed = [
        f"{names.get(topic.topic_id, '?')}-{each.partition_index} {_describe_data(each)}"
        for topic in response.responses
        for each in topic.partitions
    ]
    return f"{session}: {', '.join(listed) or 'no data'}"


def _describe_data(data: PartitionData) -> str:
    if data.error_code:
        return ErrorCode(data.error_code).name
    if data.diverging_epoch.epoch >= 0:
        return f"diverging epoch {data.diverging_epoch.epoch} ends at {data.diverging_epoch.end_offset}"
    count = len(data.records or b"") // RECORD.size
    records = f"{count or 'no'} record{'s' * (count != 1)}"
    return f"{records}, high watermark {data.high_watermark}"


def storage_error() -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
