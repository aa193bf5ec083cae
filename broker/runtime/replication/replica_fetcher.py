"""Runs one `FetcherCore` against its leader: sends what it wants to ask, does what follows from the answers.

One request of the session is on its way at a time, and the next one leaves in the very turn in which the last record of
the answer was appended: it is also what tells the leader that they were. Records stay where they were received until
the log writes them. An answer of many megabytes is appended in slices, between which the loop serves others.

Where a topic wants records flushed before they count (`flush.messages`), nothing is asked before they are: a request
says "I have everything below". Kafka's fetcher waits for the disk as well, within the append.

Connections are the transport's; which replicas belong here is `replica_fetcher_manager.py`'s.
"""

import math
from asyncio import Future
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeAlias

from broker.logs import EventLog
from broker.metrics.fetchers import FetcherFigures, ReplicaLag
from broker.net.peer import SocketAddress
from broker.replication.fetch_plan import Sender
from broker.replication.fetch_state import PartitionFetchState, PartitionKey
from broker.replication.fetcher import AuxStateBuild, FetchActions, FetchedPartition, FetcherCore, LogBound, Truncation
from broker.runtime.loop.waiters import Deadline, Deadlines, Loop
from broker.runtime.partitions.hosted_follower import FetchedOutOfOrder
from broker.runtime.replication.fetch_transport import FetchTransport, LeaderConnection, Unanswered
from broker.runtime.replication.follower_replica import FollowerReplica
from broker.runtime.replication.leader_bounds import BoundsLookup
from broker.runtime.replication.leader_offset_queries import LeaderOffsetQueries
from broker.runtime.replication.remote_log_aux_state import RemoteLogAuxStateBuild, RemoteLogSource
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchResponse
from storage.tier_start import TierStart

SLICE_BYTES: Final = 1_048_576
"""Appended in one turn of the loop, give or take a partition: half a millisecond."""
_MINUTE_S: Final = 60.0

_log: Final = EventLog("broker.fetchers")

_Followed: TypeAlias = PartitionFetchState[FollowerReplica]


class OnCut(Protocol):
    """Takes note of what became of a log that was to be cut."""

    def __call__(self, followed: _Followed, now_ms: int, *, is_done: bool) -> None: ...


class FetcherMeters:
    """What a fetcher has done since it began; the rate is per second, averaged exponentially over a minute."""

    __slots__ = ("_at_s", "_rate", "bytes", "requests")

    def __init__(self, now_s: float) -> None:
        self.requests = 0
        self.bytes = 0
        self._rate = 0.0
        self._at_s = now_s

    def on_request(self, now_s: float) -> None:
        self.requests += 1
        self._rate = self.rate(now_s) + 1 / _MINUTE_S
        self._at_s = now_s

    def rate(self, now_s: float) -> float:
        """Requests per second."""
        return self._rate * math.exp((self._at_s - now_s) / _MINUTE_S)


class ReplicaFetcher:
    """A fetcher for one leader. `index` is its number among those for that leader."""

    def __init__(
        self,
        leader_id: int,
        index: int,
        endpoint: SocketAddress,
        core: FetcherCore[FollowerReplica],
        sender: Callable[[], Sender],
        transport: FetchTransport,
        loop: Loop,
        deadlines: Deadlines,
        tier: RemoteLogSource | None = None,
    ) -> None:
        self.leader_id = leader_id
        self.index = index
        self.endpoint = endpoint
        self.core = core
        self.meters = FetcherMeters(loop.time())
        self._sender = sender
        self._transport = transport
        self._loop = loop
        self._deadlines = deadlines
        self._client_id = f"broker-{sender().broker_id}-fetcher-{index}"
        self._tier = tier
        self._main = transport.connect(endpoint, self._client_id)
        self._questions = self._new_questions()
        self._express: dict[int, LeaderConnection] = {}  # by lane
        self._address = 0  # counts: answers from a former one are void
        self._appending: deque[FetchedPartition[FollowerReplica]] = deque()
        self._unflushed: dict[PartitionKey, FollowerReplica] = {}
        self._timer: Deadline | None = None
        self._is_turn_due = False
        self._is_failing = False
        self._is_closed = False

    # ---- what the owner calls

    def add(self, partition: FollowerReplica) -> None:
        """Fetch for a replica, with whatever else is added in this turn of the loop."""
        self.core.add(partition)
        self._note_unflushed((partition.topic_id, partition.index), partition)
        self.wake()

    def remove(self, key: PartitionKey) -> None:
        """Fetch no more for a replica."""
        self.core.remove(key)
        if self._unflushed.pop(key, None) is not None:
            self.wake()

    def move(self, endpoint: SocketAddress) -> None:
        """The leader is reached elsewhere from now on."""
        self._hang_up()
        self.endpoint = endpoint
        self._main = self._transport.connect(endpoint, self._client_id)
        self._questions = self._new_questions()
        self.core.on_moved()
        self.wake()

    def wake(self) -> None:
        """Look soon whether there is something to ask."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def close(self) -> None:
        """Ask and do nothing any more. A cut that is under way goes on, and nobody hears of it."""
        self._is_closed = True
        self._hang_up()
        if self._timer is not None:
            self._timer.cancel()

    def figures(self) -> FetcherFigures:
        """What metrics show."""
        return FetcherFigures(
            self.leader_id,
            self.index,
            self.endpoint.host,
            self.endpoint.port,
            self.meters.requests,
            self.meters.bytes,
            self.meters.rate(self._loop.time()),
            self.core.failed_count,
            self.core.max_lag,
            (_lag(followed) for followed in self.core.members()),
        )

    def _hang_up(self) -> None:
        self._address += 1
        self._appending.clear()
        self._main.close()
        self._questions.close()
        for connection in self._express.values():
            connection.close()
        self._express.clear()

    def _new_questions(self) -> LeaderOffsetQueries:
        connect = partial(self._transport.connect, self.endpoint, self._client_id)
        return LeaderOffsetQueries(self._sender().broker_id, self._loop, connect)

    # ---- asking

    def _turn(self) -> None:
        self._is_turn_due = False
        self._pump()

    def _pump(self) -> None:
        """Send what may be sent, and come back when something else may."""
        if self._is_closed or self._appending or self._unflushed:
            return
        now_ms = self._now_ms()
        request = self.core.next_request(self._sender(), now_ms)
        if request is not None:
            self.meters.on_request(self._loop.time())
            self._main.fetch(request, partial(self._on_answer, self._address))
        else:
            self._send_express(now_ms)
        self._set_timer(now_ms)

    def _send_express(self, now_ms: int) -> None:
        express = self.core.express_request(self._sender(), now_ms)
        if express is None:
            return
        lane, request = express
        connection = self._express.get(lane)
        if connection is None:
            connection = self._express[lane] = self._transport.connect(self.endpoint, self._client_id)
        self.meters.on_request(self._loop.time())
        connection.fetch(request, partial(self._on_express, self._address, lane))

    def _set_timer(self, now_ms: int) -> None:
        moment_ms = self.core.next_deadline_ms(now_ms)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if moment_ms is not None:
            self._timer = self._deadlines.at(moment_ms / 1000, self._pump)

    def _now_ms(self) -> int:
        """Rounded, so that a timer that rings for a moment finds it come."""
        return round(self._loop.time() * 1000)

    # ---- answers

    def _on_answer(self, address: int, outcome: FetchResponse | Unanswered) -> None:
        if address != self._address:
            return
        now_ms = self._now_ms()
        if isinstance(outcome, Unanswered):
            self._note_failure(outcome.reason)
            self.core.on_failure(now_ms)
            self._pump()
            return
        self._perform(self.core.on_response(outcome, now_ms), self._main)

    def _on_express(self, address: int, lane: int, outcome: FetchResponse | Unanswered) -> None:
        if address != self._address:
            return
        response = None if isinstance(outcome, Unanswered) else outcome
        self._perform(self.core.on_express(lane, response, self._now_ms()), self._express[lane])

    def _note_failure(self, reason: str) -> None:
        """Once for a row of failures."""
        if not self._is_failing:
            self._is_failing = True
            _log.warning("A leader does not answer fetches", leader=self.leader_id, fetcher=self.index, reason=reason)

    def _perform(self, work: FetchActions[FollowerReplica], connection: LeaderConnection) -> None:
        if work.complaint:
            self._note_failure(work.complaint)
        else:
            self._is_failing = False
        for followed, code in work.troubles:
            self._tell(followed, code)
        for cut in work.cuts:
            self._cut(cut)
        for build in work.builds:
            self._build(build)
        if work.seeks:
            BoundsLookup(self._sender().broker_id, work.seeks, self._on_bounds).begin(connection)
        self._appending.extend(work.appends)
        self._append_some()

    def _tell(self, followed: _Followed, code: int) -> None:
        _log.info(
            "A leader does not serve a replica",
            leader=self.leader_id,
            partition=_name(followed),
            epoch=followed.leader_epoch,
            error=ErrorCode(code).name if code in ErrorCode._value2member_map_ else code,
        )

    # ---- records

    def _append_some(self) -> None:
        """Append for a while, then ask for more."""
        queue, now_ms, taken = self._appending, self._now_ms(), 0
        while queue:
            if taken >= SLICE_BYTES:
                self._loop.call_soon(partial(self._append_on, self._address))
                return
            taken += self._append(queue.popleft(), now_ms)
        self._pump()

    def _append_on(self, address: int) -> None:
        if address == self._address:
            self._append_some()

    def _append(self, fetched: FetchedPartition[FollowerReplica], now_ms: int) -> int:
        """Returns the bytes appended."""
        followed, data = fetched
        if not followed.awaits_answer:
            return 0
        records = data.records
        if records is None:
            records = b""
        size_bytes = len(records)
        try:
            taken = followed.partition.append_fetched(
                followed.leader_epoch, followed.position.offset, records, data.high_watermark, data.log_start_offset
            )
        except KafkaError as error:
            self._on_refused(followed, error, now_ms)
            return size_bytes
        except FetchedOutOfOrder as error:
            self._on_out_of_order(followed, error)
            return size_bytes
        if not taken:
            self.core.on_not_appended(followed, now_ms)
            return 0
        self._note_unflushed(followed.key, followed.partition)
        self.core.on_appended(fetched, now_ms)
        self.meters.bytes += size_bytes
        followed.partition.traffic.replication_bytes_in += size_bytes
        return size_bytes

    def _note_unflushed(self, key: PartitionKey, partition: FollowerReplica) -> None:
        if not partition.is_flushed:
            self._unflushed[key] = partition
            partition.when_flushed(partial(self._on_flushed, key, partition))

    def _on_flushed(self, key: PartitionKey, partition: FollowerReplica) -> None:
        """It may have gone and come back meanwhile, and have more to flush by now."""
        if partition.is_flushed and self._unflushed.get(key) is partition:
            del self._unflushed[key]
            self.wake()

    def _on_refused(self, followed: _Followed, error: KafkaError, now_ms: int) -> None:
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            self.core.on_broken(followed)
            return
        _log.warning("Records from a leader are not taken", partition=_name(followed), reason=str(error))
        self.core.on_not_appended(followed, now_ms)

    def _on_out_of_order(self, followed: _Followed, error: FetchedOutOfOrder) -> None:
        if error.diverges_at is None:
            _log.error("A leader sent records that do not follow", error, partition=_name(followed))
            self.core.on_broken(followed)
        else:
            self._cut(self.core.on_parted(followed, error.diverges_at))

    # ---- cuts

    def _cut(self, cut: Truncation[FollowerReplica]) -> None:
        followed, offset, restarts = cut
        partition = followed.partition
        operation = partition.truncate_fully_and_start_at if restarts else partition.truncate
        operation(followed.leader_epoch, offset).add_done_callback(partial(self._on_cut, followed, self.core.on_cut))

    def _on_cut(self, followed: _Followed, note: OnCut, done: "Future[bool]") -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None and not isinstance(error, KafkaError):
            raise error
        if self._is_closed:
            return
        if error is not None:
            self.core.on_broken(followed)
        else:
            note(followed, self._now_ms(), is_done=not done.cancelled() and done.result())
        self.wake()

    def _on_bounds(self, followed: _Followed, start: LogBound, end: LogBound) -> None:
        if self._is_closed:
            return
        todo = self.core.on_bounds(followed, start, end, self._now_ms())
        if isinstance(todo, Truncation):
            self._cut(todo)
        elif todo is not None:
            self._build(todo)
        self.wake()

    # ---- beginning behind what is remote

    def _build(self, build: AuxStateBuild[FollowerReplica]) -> None:
        followed = build.followed
        if self._tier is not None:
            RemoteLogAuxStateBuild(build, self._tier, self._questions, self).begin()
            return
        if not followed.failures:
            self._tell(followed, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
        self.core.on_not_built(followed, self._now_ms())

    def on_start(self, followed: _Followed, start: TierStart) -> None:
        """Implements BuildOutcome."""
        done = followed.partition.start_from_tier(followed.leader_epoch, start)
        done.add_done_callback(partial(self._on_cut, followed, self.core.on_built))

    def on_nothing_remote(self, followed: _Followed, offset: int) -> None:
        """Implements BuildOutcome."""
        cut = self.core.on_nothing_remote(followed, offset)
        if cut is not None:
            self._cut(cut)

    def on_gave_up(self, followed: _Followed, *, is_fenced: bool) -> None:
        """Implements BuildOutcome."""
        if is_fenced:
            self.core.on_broken(followed)
        else:
            self.core.on_not_built(followed, self._now_ms())
        self.wake()


def _lag(followed: _Followed) -> ReplicaLag:
    return ReplicaLag(followed.partition.topic, followed.partition.index, max(0, followed.lag))


def _name(followed: _Followed) -> str:
    return f"{followed.partition.topic}-{followed.partition.index}"
