"""One replica fetcher: runs a `FetcherCore` against its leader, sends its requests, and performs its actions.

At most one request of the session is under way. The next one is sent in the same loop iteration in which the last
record of the answer was appended, since the request acknowledges them. Records stay in the receive buffer until the log
writes them. An answer of many megabytes is appended in slices, and the loop serves others in between.

Where a topic demands flushes before records count (`flush.messages`), no request is sent before the flush: the fetch
offset promises everything below. Kafka's fetcher also waits for the disk, within the append.

The transport owns connections; `replica_fetcher_manager.py` assigns replicas.
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
from broker.replication.fetch_actions import AuxStateBuild, FetchActions, FetchedPartition, LogBound, Truncation
from broker.replication.fetch_plan import Sender
from broker.replication.fetch_state import PartitionFetchState, PartitionKey
from broker.replication.fetcher import FetcherCore
from broker.runtime.loop.runtime import Runtime
from broker.runtime.loop.waiters import Deadline
from broker.runtime.partitions.hosted_follower import FetchedOutOfOrder
from broker.runtime.replication.fetch_transport import FetchTransport, LeaderConnection, Unanswered
from broker.runtime.replication.follower_replica import FollowerReplica
from broker.runtime.replication.leader_bounds import BoundsLookup
from broker.runtime.replication.leader_offset_queries import LeaderOffsetQueries
from broker.runtime.replication.remote_log_aux_state import RemoteLogAuxStateBuild, RemoteLogSource
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchResponse
from storage.remote_log_start import RemoteLogStart

SLICE_BYTES: Final = 1_048_576
"""The bytes appended in one loop iteration, rounded up to whole partitions: takes half a millisecond."""
_MINUTE_S: Final = 60.0

_log: Final = EventLog("broker.fetchers")

_Followed: TypeAlias = PartitionFetchState[FollowerReplica]


class OnTruncated(Protocol):
    """Notes the outcome of a truncation or restart of a log."""

    def __call__(self, followed: _Followed, now_ms: int, *, is_done: bool) -> None: ...


class FetcherMeters:
    """Counters of a fetcher since its start; the rate is per second, averaged exponentially over a minute."""

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
        """Return requests per second."""
        return self._rate * math.exp((self._at_s - now_s) / _MINUTE_S)


class ReplicaFetcher:
    """A fetcher for one leader. `index` is its number among the fetchers for that leader.

    `remote` is None where remote storage is off.
    """

    def __init__(
        self,
        runtime: Runtime,
        leader_id: int,
        index: int,
        endpoint: SocketAddress,
        core: FetcherCore[FollowerReplica],
        sender: Callable[[], Sender],
        transport: FetchTransport,
        remote: RemoteLogSource | None = None,
    ) -> None:
        self.leader_id = leader_id
        self.index = index
        self.endpoint = endpoint
        self.core = core
        self._loop = runtime.loop
        self._deadlines = runtime.deadlines
        self.meters = FetcherMeters(self._loop.time())
        self._sender = sender
        self._transport = transport
        self._client_id = f"broker-{sender().broker_id}-fetcher-{index}"
        self._remote = remote
        self._session_connection = transport.connect(endpoint, self._client_id)
        self._offset_queries = self._new_offset_queries()
        self._sessionless_connections: dict[int, LeaderConnection] = {}
        self._connection_epoch = 0
        """Increments with each hang-up; answers to requests of a former connection epoch are void."""
        self._appending: deque[FetchedPartition[FollowerReplica]] = deque()
        self._unflushed: dict[PartitionKey, FollowerReplica] = {}
        self._timer: Deadline | None = None
        self._is_scheduled = False
        self._is_failing = False
        self._is_closed = False

    # ---- calls of the owner

    def add(self, partition: FollowerReplica) -> None:
        """Fetch for a replica, together with all replicas that are added in this loop iteration."""
        self.core.add(partition)
        self._note_unflushed((partition.topic_id, partition.index), partition)
        self.wake()

    def remove(self, key: PartitionKey) -> None:
        """Fetch no more for a replica."""
        self.core.remove(key)
        if self._unflushed.pop(key, None) is not None:
            self.wake()

    def change_endpoint(self, endpoint: SocketAddress) -> None:
        """Connect to the leader at another endpoint."""
        self._hang_up()
        self.endpoint = endpoint
        self._session_connection = self._transport.connect(endpoint, self._client_id)
        self._offset_queries = self._new_offset_queries()
        self.core.on_endpoint_changed()
        self.wake()

    def wake(self) -> None:
        """Send the next request soon, if there is one."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._on_scheduled)

    def close(self) -> None:
        """Stop. A truncation under way continues without effect on the fetcher."""
        self._is_closed = True
        self._hang_up()
        if self._timer is not None:
            self._timer.cancel()

    def figures(self) -> FetcherFigures:
        """Return the values of the metrics."""
        return FetcherFigures(
            self.leader_id,
            self.index,
            self.endpoint.host,
            self.endpoint.port,
            self.meters.requests,
            self.meters.bytes,
            self.meters.rate(self._loop.time()),
            self.core.replicas.failed_count,
            self.core.replicas.max_lag,
            (_lag(followed) for followed in self.core.replicas.all()),
        )

    def _hang_up(self) -> None:
        self._connection_epoch += 1
        self._appending.clear()
        self._session_connection.close()
        self._offset_queries.close()
        for connection in self._sessionless_connections.values():
            connection.close()
        self._sessionless_connections.clear()

    def _new_offset_queries(self) -> LeaderOffsetQueries:
        connect = partial(self._transport.connect, self.endpoint, self._client_id)
        return LeaderOffsetQueries(self._sender().broker_id, self._loop, connect)

    # ---- requests

    def _on_scheduled(self) -> None:
        self._is_scheduled = False
        self._send_requests()

    def _send_requests(self) -> None:
        """Send the requests that are due, and set the timer for the next ones."""
        if self._is_closed or self._appending or self._unflushed:
            return
        now_ms = self._now_ms()
        request = self.core.next_request(self._sender(), now_ms)
        if request is not None:
            self.meters.on_request(self._loop.time())
            self._session_connection.fetch(request, partial(self._on_answer, self._connection_epoch))
        else:
            self._send_sessionless(now_ms)
        self._set_timer(now_ms)

    def _send_sessionless(self, now_ms: int) -> None:
        while (found := self.core.sessionless_request(self._sender(), now_ms)) is not None:
            number, request = found
            connection = self._sessionless_connections.get(number)
            if connection is None:
                connection = self._transport.connect(self.endpoint, self._client_id)
                self._sessionless_connections[number] = connection
            self.meters.on_request(self._loop.time())
            connection.fetch(request, partial(self._on_sessionless_answer, self._connection_epoch, number))

    def _set_timer(self, now_ms: int) -> None:
        moment_ms = self.core.next_deadline_ms(now_ms)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if moment_ms is not None:
            self._timer = self._deadlines.at(moment_ms / 1000, self._send_requests)

    def _now_ms(self) -> int:
        """Return the time, rounded: a timer for a moment must not fire before that moment."""
        return round(self._loop.time() * 1000)

    # ---- answers

    def _on_answer(self, connection_epoch: int, outcome: FetchResponse | Unanswered) -> None:
        if connection_epoch != self._connection_epoch:
            return
        now_ms = self._now_ms()
        if isinstance(outcome, Unanswered):
            self._note_failure(outcome.reason)
            self.core.on_failure(now_ms)
            self._send_requests()
            return
        self._perform(self.core.on_response(outcome, now_ms), self._session_connection)

    def _on_sessionless_answer(self, connection_epoch: int, number: int, outcome: FetchResponse | Unanswered) -> None:
        if connection_epoch != self._connection_epoch:
            return
        response = None if isinstance(outcome, Unanswered) else outcome
        actions = self.core.on_sessionless_response(number, response, self._now_ms())
        self._perform(actions, self._sessionless_connections[number])

    def _note_failure(self, reason: str) -> None:
        """Log the first failure in a row."""
        if not self._is_failing:
            self._is_failing = True
            _log.warning("The leader does not answer fetches", leader=self.leader_id, fetcher=self.index, reason=reason)

    def _perform(self, actions: FetchActions[FollowerReplica], connection: LeaderConnection) -> None:
        if actions.complaint:
            self._note_failure(actions.complaint)
        else:
            self._is_failing = False
        for followed, code in actions.failures:
            self._log_failure(followed, code)
        for truncation in actions.truncations:
            self._truncate(truncation)
        for build in actions.builds:
            self._build(build)
        if actions.out_of_range:
            BoundsLookup(self._sender().broker_id, actions.out_of_range, self._on_bounds).begin(connection)
        self._appending.extend(actions.appends)
        self._append_some()

    def _log_failure(self, followed: _Followed, code: int) -> None:
        _log.info(
            "The leader does not serve a replica",
            leader=self.leader_id,
            partition=_name(followed),
            epoch=followed.leader_epoch,
            error=ErrorCode(code).name if code in ErrorCode._value2member_map_ else code,
        )

    # ---- appends

    def _append_some(self) -> None:
        """Append one slice; send the next request after the last slice."""
        queue, now_ms, taken = self._appending, self._now_ms(), 0
        while queue:
            if taken >= SLICE_BYTES:
                self._loop.call_soon(partial(self._append_next_slice, self._connection_epoch))
                return
            taken += self._append(queue.popleft(), now_ms)
        self._send_requests()

    def _append_next_slice(self, connection_epoch: int) -> None:
        if connection_epoch == self._connection_epoch:
            self._append_some()

    def _append(self, fetched: FetchedPartition[FollowerReplica], now_ms: int) -> int:
        """Append to one replica; return the size of the records."""
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
        """Resume, unless the replica has left and returned meanwhile with more records to flush."""
        if partition.is_flushed and self._unflushed.get(key) is partition:
            del self._unflushed[key]
            self.wake()

    def _on_refused(self, followed: _Followed, error: KafkaError, now_ms: int) -> None:
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            self.core.on_broken(followed)
            return
        _log.warning("A replica cannot append the leader's records", partition=_name(followed), reason=str(error))
        self.core.on_not_appended(followed, now_ms)

    def _on_out_of_order(self, followed: _Followed, error: FetchedOutOfOrder) -> None:
        if error.diverges_at is None:
            _log.error("The leader sent records below the log end offset", error, partition=_name(followed))
            self.core.on_broken(followed)
        else:
            self._truncate(self.core.on_out_of_order(followed, error.diverges_at))

    # ---- truncations

    def _truncate(self, truncation: Truncation[FollowerReplica]) -> None:
        followed, offset, is_full = truncation
        partition = followed.partition
        operation = partition.truncate_fully_and_start_at if is_full else partition.truncate
        done = operation(followed.leader_epoch, offset)
        done.add_done_callback(partial(self._on_truncated, followed, self.core.on_truncated))

    def _on_truncated(self, followed: _Followed, note: OnTruncated, done: "Future[bool]") -> None:
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
        action = self.core.on_bounds(followed, start, end, self._now_ms())
        if isinstance(action, Truncation):
            self._truncate(action)
        elif action is not None:
            self._build(action)
        self.wake()

    # ---- builds of remote log auxiliary state

    def _build(self, build: AuxStateBuild[FollowerReplica]) -> None:
        followed = build.followed
        if self._remote is not None:
            RemoteLogAuxStateBuild(build, self._remote, self._offset_queries, self).begin()
            return
        if not followed.failures:
            self._log_failure(followed, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
        self.core.on_build_failed(followed, self._now_ms())

    def on_start(self, followed: _Followed, start: RemoteLogStart) -> None:
        """Implements BuildOutcome."""
        done = followed.partition.start_behind_remote_log(followed.leader_epoch, start)
        done.add_done_callback(partial(self._on_truncated, followed, self.core.on_built))

    def on_nothing_remote(self, followed: _Followed, offset: int) -> None:
        """Implements BuildOutcome."""
        truncation = self.core.on_nothing_remote(followed, offset)
        if truncation is not None:
            self._truncate(truncation)

    def on_build_failed(self, followed: _Followed, *, is_fenced: bool) -> None:
        """Implements BuildOutcome."""
        if is_fenced:
            self.core.on_broken(followed)
        else:
            self.core.on_build_failed(followed, self._now_ms())
        self.wake()


def _lag(followed: _Followed) -> ReplicaLag:
    return ReplicaLag(followed.partition.topic, followed.partition.index, max(0, followed.lag))


def _name(followed: _Followed) -> str:
    return f"{followed.partition.topic}-{followed.partition.index}"
