"""Fetch (key 1), versions 4-18: read batches, at once or as soon as there are enough of them.

5+ log start; 7+ incremental sessions (KIP-227); 9+ leader epochs (KIP-320); 11+ any replica may serve, rack
(KIP-392); 12+ divergence; 13+ topics by id (KIP-516); 14+ followers are told what remote storage alone has (KIP-405);
15+ the follower's broker epoch (KIP-903); 16+ current leaders and their addresses (KIP-951). 17 and 18 matter to voters
and the metadata log only.

A request is a *round*: look at the targets that are due, in order, within the byte limits; answer if that is enough,
else wait until a target changes or the time is over, and look again at what changed. Records are never copied: the
answer carries views of the log's own memory. What remote storage alone has is fetched for consumers meanwhile.

A consumer that says where it is may be sent to a replica nearby, if the broker selects replicas at all. Followers that
are not in sync get nothing for listed partitions while the quota of this leader is exceeded (KIP-73).

The Java consumer takes any error code outside of a small set for a bug and stops; `CONSUMER_ERRORS` is that set, and
nothing else leaves here.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from broker.api.serving.context import RequestContext
from broker.api.serving.current_leader import LeaderHints
from broker.api.serving.fetch_remote import LINGER_MS, RemotePart, RemoteReading
from broker.clock import Clock
from broker.metadata.image.topic_image import TopicImage
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.waiters import Deadline, Deadlines, Loop, Watches
from broker.runtime.partitions.fetch_sessions import FetchSessions, OpenFetch, SessionAsk, SessionRefused
from broker.runtime.partitions.metadata_topic import MetadataPartition, MetadataTopic
from broker.runtime.partitions.nearby_reads import NearbyReads
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.partition_reads import FetchParams, ReadLimits, read, redirect
from broker.runtime.partitions.reads import UNKNOWN, FetchIsolation, FetchTarget, LogReadResult, TargetKey
from broker.runtime.partitions.registry import Partitions
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from protocol.primitives import ZERO_UUID
from storage.local_log import LogSlice

TOPIC_IDS_FROM = 13
ANY_REPLICA_FROM = 11
CURRENT_LEADER_FROM = 16
REPLICA_STATE_FROM = 15
TIERED_FOLLOWERS_FROM = 14
STORAGE_ERROR_FROM = 6
SESSIONS_FROM = 7

READ_COMMITTED = 1
CONSUMER_ERRORS = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
_REDIRECTED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

# Shared by all answers that have none; never changed.
_NO_DIVERGENCE = EpochEndOffset()
_NO_LEADER = LeaderIdAndEpoch()
_NO_SNAPSHOT = SnapshotId()


class LeaderQuota(Protocol):
    """The bound on what this broker sends to followers (`leader.replication.throttled.rate`). Monotonic ms."""

    def is_listed(self, topic: str, partition: int, /) -> bool:
        """Whether traffic of this replica counts."""

    def is_exceeded(self, now_ms: float, /) -> bool: ...

    def record(self, size_bytes: int, now_ms: float, /) -> None:
        """Records sent to the follower of a listed replica."""


class FetchHandler:
    """Answers Fetch. `max_bytes` is the broker's own bound (`fetch.max.bytes`) for an answer.

    `nearby` is None where consumers are not sent elsewhere (`replica.selector.class`), `quota` where followers get all
    they can. `metadata_topic` is None where `__cluster_metadata` is not for clients to read, `remote` where there is no
    remote storage.
    """

    def __init__(
        self,
        partitions: Partitions,
        sessions: FetchSessions,
        deadlines: Deadlines,
        loop: Loop,
        io: BlockingIo,
        clock: Clock,
        *,
        max_bytes: int,
        metadata_topic: MetadataTopic | None = None,
        nearby: NearbyReads | None = None,
        quota: LeaderQuota | None = None,
        remote: RemoteReading | None = None,
    ) -> None:
        self._source = FetchSource(partitions, metadata_topic)
        self._terms = _Terms(clock, max_bytes, nearby, quota, remote)
        self._sessions = sessions
        self._deadlines = deadlines
        self._loop = loop
        self._io = io
        self._clock = clock

    def __call__(self, request: FetchRequest, context: RequestContext) -> FetchResponse | Awaitable[FetchResponse]:
        reader = reader_of(request, context.api_version)
        opened = self._sessions.open(session_ask(request, context.api_version, reader), self._clock.now_ms())
        if isinstance(opened, SessionRefused):
            return FetchResponse(error_code=opened.error)
        fetch = _Fetch(opened, reader, request, context, self._source, self._terms)
        fetch.look(first=True)
        is_enough = fetch.is_enough or (request.max_wait_ms <= 0 and not fetch.may_outstay)
        if is_enough and not fetch.cold:
            return fetch.answer()
        pending = _PendingFetch(fetch, self._loop, self._io, self._deadlines)
        if is_enough:
            pending.finish()
        else:
            pending.wait(request.max_wait_ms)
            context.when_input_ended(pending.on_input_ended)
        return pending.future


def reader_of(request: FetchRequest, version: int) -> FetchParams:
    """Who asks. Broker ids are followers; -1 are consumers, and so is -2, which debugs."""
    state = request.replica_state
    broker_id = state.replica_id if version >= REPLICA_STATE_FROM else request.replica_id
    if broker_id >= 0:
        epoch = state.replica_epoch if version >= REPLICA_STATE_FROM else -1
        return FetchParams(FetchIsolation.LOG_END, needs_leader=True, broker_id=broker_id, broker_epoch=epoch)
    isolation = (
        FetchIsolation.LAST_STABLE if request.isolation_level == READ_COMMITTED else FetchIsolation.HIGH_WATERMARK
    )
    if version < ANY_REPLICA_FROM:
        return FetchParams(isolation, needs_leader=True)
    return FetchParams(isolation, needs_leader=False, rack=request.rack_id)


def session_ask(request: FetchRequest, version: int, reader: FetchParams) -> SessionAsk:
    """The request as its session sees it."""
    by_id = version >= TOPIC_IDS_FROM
    targets = [
        FetchTarget(
            "" if by_id else topic.topic,
            topic.topic_id if by_id else ZERO_UUID,
            p.partition,
            p.fetch_offset,
            p.partition_max_bytes,
            p.current_leader_epoch,
            p.last_fetched_epoch,
            p.log_start_offset,
        )
        for topic in request.topics
        for p in topic.partitions
    ]
    forgotten: list[TargetKey] = [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    return SessionAsk(request.session_id, request.session_epoch, by_id, reader.is_follower, targets, forgotten)


Readable = Partition | MetadataPartition


class FetchSource:
    """What can be fetched from on this node: partitions, and the metadata log, which is found when nothing else is."""

    __slots__ = ("_metadata_topic", "partitions")

    def __init__(self, partitions: Partitions, metadata_topic: MetadataTopic | None) -> None:
        self.partitions = partitions
        self._metadata_topic = metadata_topic

    def find(self, target: FetchTarget) -> Readable | None:
        """What a target names, if it is served here."""
        by_id = target.topic_id != ZERO_UUID
        hosted = self.partitions.by_id.get(target.topic_id) if by_id else self.partitions.by_name.get(target.topic)
        if hosted is not None:
            return hosted.partitions.get(target.index)
        if self._metadata_topic is not None and self._metadata_topic.is_meant(target.topic, target.topic_id):
            return self._metadata_topic.partition(self.partitions.image, target.index)
        return None

    def topic_image(self, target: FetchTarget) -> TopicImage | None:
        """The topic of a target by the metadata."""
        image = self.partitions.image
        by_id = target.topic_id != ZERO_UUID
        found = image.topics.by_id(target.topic_id) if by_id else image.topics.by_name(target.topic)
        special = self._metadata_topic
        if found is None and special is not None and special.is_meant(target.topic, target.topic_id):
            return special.topic(image)
        return found


class _Terms(NamedTuple):
    """What all requests of a handler are subject to."""

    clock: Clock
    max_bytes: int
    nearby: NearbyReads | None
    quota: LeaderQuota | None
    remote: RemoteReading | None


class _Fetch:
    """One request: what was found so far, and whether that is enough to answer."""

    __slots__ = (
        "_context",
        "_is_urgent",
        "_max_bytes",
        "_min_bytes",
        "_reader",
        "_results",
        "_size_bytes",
        "_source",
        "_terms",
        "cold",
        "opened",
        "remote",
    )

    def __init__(
        self,
        opened: OpenFetch,
        reader: FetchParams,
        request: FetchRequest,
        context: RequestContext,
        source: FetchSource,
        terms: _Terms,
    ) -> None:
        self.opened = opened
        self._reader = reader
        self._context = context
        self._source = source
        self._terms = terms
        self._max_bytes = min(request.max_bytes, terms.max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._results: dict[FetchTarget, LogReadResult] = {}
        self.cold: list[tuple[Readable, LogSlice]] = []
        self._size_bytes = 0
        self._is_urgent = False
        self.remote: RemotePart | None = None

    @property
    def is_enough(self) -> bool:
        if self.remote is not None and not self._is_urgent:
            return self.remote.is_enough(self._size_bytes, self._min_bytes)
        return self._is_urgent or self._size_bytes >= self._min_bytes or not self.opened.targets

    @property
    def may_outstay(self) -> bool:
        """Whether there is nothing at all to answer with, but remote storage is about to have something."""
        return self.remote is not None and self.remote.is_awaited and not self._size_bytes

    def look(self, *, first: bool) -> None:
        """Read the targets that are due, in order, within the limits. What has nothing to say rests until it changes.

        Limits are soft for the first records of an answer: a batch larger than they are must still get through.
        """
        self._size_bytes, self._is_urgent = 0, False
        self.cold.clear()
        room = self._max_bytes
        due = self.opened.targets.due()
        if self.remote is not None:
            self.remote.begin_look(due)
        for target in due:
            result = self._read(target, room, first=first)
            self._results[target] = result
            self._size_bytes += result.size_bytes
            self._is_urgent = self._is_urgent or result.is_urgent
            room = max(0, room - result.size_bytes)

    def watch(self) -> None:
        """Hear of changes of the targets that have something, but not enough; those that rest are watched already."""
        for target in self.opened.targets.due():
            partition = self._source.find(target)
            if partition is not None:
                self.opened.targets.watch(target, self._bounds(partition))

    def admit_failures(self) -> None:
        """The time is over: what remote storage could not do is told, and tried again with the next request."""
        if self.remote is not None:
            for target, error in self.remote.failures():
                self._results[target] = LogReadResult(error=error)
                self.opened.targets.recall(target)

    def answer(self) -> FetchResponse:
        """The response with what was found; the session takes note of it."""
        settled = self.opened.answer(self._results, self._terms.clock.now_ms())
        response = FetchResponse(error_code=settled.error, session_id=settled.session_id)
        hints = LeaderHints(self._source.partitions.image, self._context.listener)
        topic: FetchableTopicResponse | None = None
        for target in settled.listed:
            if topic is None or (topic.topic, topic.topic_id) != (target.topic, target.topic_id):
                topic = FetchableTopicResponse(target.topic, target.topic_id)
                response.responses.append(topic)
            result = self._results[target]
            topic.partitions.append(self._entry(target, result, hints))
            if result.size_bytes:
                self._count(target, result.size_bytes)
        if self.remote is not None:
            self._leave_remote(self.remote, settled.listed)
        if self._context.api_version >= CURRENT_LEADER_FROM:
            response.node_endpoints = [NodeEndpoint(*address) for address in hints.addresses()]
        return response

    def _leave_remote(self, remote: RemotePart, listed: Sequence[FetchTarget]) -> None:
        """What nothing was begun for rests on nothing: the next request looks at it in any case."""
        remote.delivered(listed)
        for target in remote.refused:
            self.opened.targets.recall(target)

    def _read(self, target: FetchTarget, room: int, *, first: bool) -> LogReadResult:
        partition = self._source.find(target)
        traffic = self._source.partitions.traffic.elsewhere if partition is None else partition.traffic
        traffic.total_fetch_requests += first
        if partition is None:
            traffic.failed_fetch_requests += first
            return LogReadResult(error=self._absence(target), aborted=())
        limits = ReadLimits(min(target.max_bytes, room), min_one=not self._size_bytes)
        if isinstance(partition, MetadataPartition):
            result = partition.read(target, self._reader, limits)
        else:
            result = self._read_partition(partition, target, limits, first=first)
        if result.cold is not None:
            self.cold.append((partition, result.cold))
        if result.is_idle:
            self.opened.targets.rest(target, self._bounds(partition))
        elif result.error is not ErrorCode.NONE:
            if result.error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE and not self._reader.is_follower:
                result = self._read_remote(partition, target, limits, result)
            traffic.failed_fetch_requests += first and result.error is not ErrorCode.NONE
        return result

    def _read_remote(
        self, partition: Readable, target: FetchTarget, limits: ReadLimits, moved: LogReadResult
    ) -> LogReadResult:
        reading = self._terms.remote
        if reading is None or isinstance(partition, MetadataPartition):
            return LogReadResult(error=ErrorCode.KAFKA_STORAGE_ERROR)
        if self.remote is None:
            self.remote = RemotePart(reading)
        result = self.remote.read(partition, target, self._reader, limits, moved)
        bounds = self.remote.bounds_of(target)
        if bounds is not None:
            self.opened.targets.rest(target, bounds)
        return result

    def _read_partition(
        self, partition: Partition, target: FetchTarget, limits: ReadLimits, *, first: bool
    ) -> LogReadResult:
        """From here, unless another replica is nearer or the follower has to wait."""
        nearby, reader = self._terms.nearby, self._reader
        if nearby is not None and reader.rack:
            replica = nearby.replica_for(partition, target.fetch_offset, reader.rack, self._context.listener)
            if replica != UNKNOWN:
                return redirect(partition, target, replica)
        result = read(partition, target, reader, limits, is_first_look=first)
        if result.size_bytes and reader.is_follower and self._must_wait(partition):
            return LogReadResult(
                ErrorCode.NONE, result.high_watermark, result.last_stable_offset, result.log_start_offset
            )
        return result

    def _must_wait(self, partition: Partition) -> bool:
        """A throttle never holds back a member, or it would take it out of the in-sync set."""
        quota = self._terms.quota
        return (
            quota is not None
            and quota.is_listed(partition.topic, partition.index)
            and not partition.isr_updater.is_in_sync(self._reader.broker_id)
            and quota.is_exceeded(self._terms.clock.monotonic_ms())
        )

    def _charge(self, partition: Partition, size_bytes: int) -> None:
        """The traffic of members counts as well."""
        quota = self._terms.quota
        if quota is not None and quota.is_listed(partition.topic, partition.index):
            quota.record(size_bytes, self._terms.clock.monotonic_ms())

    def _count(self, target: FetchTarget, size_bytes: int) -> None:
        partition = self._source.find(target)
        traffic = self._source.partitions.traffic.elsewhere if partition is None else partition.traffic
        if self._reader.is_follower:
            traffic.replication_bytes_out += size_bytes
            if isinstance(partition, Partition):
                self._charge(partition, size_bytes)
        else:
            traffic.bytes_out += size_bytes

    def _bounds(self, partition: Readable) -> tuple[Watches, ...]:
        if self._reader.is_follower and isinstance(partition, Partition):
            return partition.follower_bounds
        return partition.consumer_bounds

    def _absence(self, target: FetchTarget) -> ErrorCode:
        """Why a partition cannot be read here."""
        image = self._source.topic_image(target)
        if image is None and self._context.api_version >= TOPIC_IDS_FROM:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return self._source.partitions.absence_error(image, target.index)

    def _entry(self, target: FetchTarget, result: LogReadResult, hints: LeaderHints) -> PartitionData:
        error = self._error_told(result.error)
        leader = _NO_LEADER
        if error in _REDIRECTED and self._context.api_version >= CURRENT_LEADER_FROM:
            leader = LeaderIdAndEpoch(*hints.leader_of(self._source.topic_image(target), target.index))
        diverging = result.diverging
        return PartitionData(
            target.index,
            error,
            result.high_watermark,
            result.last_stable_offset,
            result.log_start_offset,
            _NO_DIVERGENCE if diverging is None else EpochEndOffset(diverging.epoch, diverging.end_offset),
            leader,
            _NO_SNAPSHOT if result.snapshot_id is None else SnapshotId(*result.snapshot_id),
            None if result.aborted is None else [AbortedTransaction(*one) for one in result.aborted],
            result.preferred_read_replica,
            result.records,
        )

    def _error_told(self, error: ErrorCode) -> ErrorCode:
        """The code as this reader understands it."""
        if error is ErrorCode.KAFKA_STORAGE_ERROR and self._context.api_version < STORAGE_ERROR_FROM:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error in CONSUMER_ERRORS:
            return error
        is_known = (
            error is not ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE or self._context.api_version >= TIERED_FOLLOWERS_FROM
        )
        return error if self._reader.is_follower and is_known else ErrorCode.UNKNOWN_SERVER_ERROR


class _PendingFetch:
    """A request that waits for more to read, for its time to be over, or for the disk.

    Changes arrive in bursts while other requests are handled; one look for each turn of the loop answers them all.
    Records that are not in memory are brought there by the IO thread before the answer leaves: the loop, which would
    touch them while it writes to the socket, never waits for a disk.
    """

    def __init__(self, fetch: _Fetch, loop: Loop, io: BlockingIo, deadlines: Deadlines) -> None:
        self._fetch = fetch
        self._loop = loop
        self._io = io
        self._deadlines = deadlines
        self._deadline: Deadline | None = None
        self._look_is_due = False
        self._is_lingering = False
        self._to_warm = 0
        self.future: asyncio.Future[FetchResponse] = loop.create_future()
        self.future.add_done_callback(self._on_done)

    def wait(self, max_wait_ms: int) -> None:
        """Look again at every change, until there is enough or time is over."""
        remote = self._fetch.remote
        if remote is None:
            self._deadline = self._deadlines.after_ms(max_wait_ms, self._on_time)
        else:
            first_ms = min(max(0, max_wait_ms), remote.wait_max_ms)
            overtime_ms = remote.wait_max_ms - first_ms
            self._deadline = self._deadlines.after_ms(first_ms, partial(self._on_client_time, overtime_ms))
        self._fetch.opened.targets.on_change = self._on_change
        self._go_on_waiting()

    def finish(self) -> None:
        """Answer with what was found, once it is in memory."""
        self._fetch.opened.targets.on_change = None
        if self._deadline is not None:
            self._deadline.cancel()
        self._to_warm = len(self._fetch.cold)
        for partition, found in tuple(self._fetch.cold):
            self._io.submit(partial(partition.log.warm, found)).add_done_callback(self._on_warm)
        if not self._to_warm:
            self._answer()

    def _on_change(self) -> None:
        if not self._look_is_due:
            self._look_is_due = True
            self._loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        self._look_is_due = False
        if self._is_over:
            return
        self._fetch.look(first=False)
        if self._fetch.is_enough:
            self.finish()
        else:
            self._go_on_waiting()

    def _go_on_waiting(self) -> None:
        self._fetch.watch()
        remote = self._fetch.remote
        if remote is not None and remote.size_bytes and not self._is_lingering and self._deadline is not None:
            self._is_lingering = True
            self._deadline.cancel()
            self._deadline = self._deadlines.after_ms(LINGER_MS, self.on_input_ended)

    def on_input_ended(self) -> None:
        """Answer with what there is."""
        if not self._is_over:
            self._fetch.look(first=False)
            self.finish()

    def _on_client_time(self, overtime_ms: int) -> None:
        """The time that the client would wait is over, but not what remote storage may take."""
        if overtime_ms and self._fetch.may_outstay and not self._is_over:
            self._deadline = self._deadlines.after_ms(overtime_ms, self._on_time)
        else:
            self._on_time()

    def _on_time(self) -> None:
        """The time is over."""
        if not self._is_over:
            self._fetch.look(first=False)
            self._fetch.admit_failures()
            self.finish()

    @property
    def _is_over(self) -> bool:
        return self.future.done() or self._to_warm > 0

    def _on_warm(self, done: "asyncio.Future[None]") -> None:
        """Records of a disk that failed meanwhile must not be touched: look again, and find the partition offline."""
        self._to_warm -= 1
        error = done.exception()
        if error is not None and not self.future.done():
            self.future.set_exception(error)
        if self._to_warm or self.future.done():
            return
        if any(partition.log.failure is not None for partition, _ in self._fetch.cold):
            self._fetch.look(first=False)
            self.finish()
        else:
            self._answer()

    def _answer(self) -> None:
        self.future.set_result(self._fetch.answer())

    def _on_done(self, future: "asyncio.Future[FetchResponse]") -> None:
        """Answered, or the peer is gone."""
        if future.cancelled():
            if self._deadline is not None:
                self._deadline.cancel()
            self._fetch.opened.release()
