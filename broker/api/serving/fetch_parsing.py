"""Fetch requests translated into what `broker.fetch` takes: a reader, a session request and parameters."""

from typing import Final

from broker.api.serving.context import RequestContext
from broker.fetch.rounds import FetchOptions
from broker.fetch.sessions import Position, SessionRequest
from broker.runtime.partitions.partition_reads import FetchParams
from broker.runtime.partitions.reads import FetchIsolation, FetchTarget, TargetKey
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from protocol.messages.fetch import FetchRequest
from protocol.primitives import ZERO_UUID

READ_COMMITTED: Final = 1
TOPIC_IDS_FROM: Final = 13
_ANY_REPLICA_FROM: Final = 11
_REPLICA_STATE_FROM: Final = 15

# Consumers without a rack, which most fetches are from.
_READER: Final = FetchParams(FetchIsolation.HIGH_WATERMARK, needs_leader=False)
_COMMITTED_READER: Final = FetchParams(FetchIsolation.LAST_STABLE, needs_leader=False)


def reader_of(request: FetchRequest, version: int) -> FetchParams:
    """Return the reader of a request: a follower if it names a broker id; -1 is a consumer, -2 a debugging consumer."""
    state = request.replica_state
    broker_id = state.replica_id if version >= _REPLICA_STATE_FROM else request.replica_id
    if broker_id >= 0:
        epoch = state.replica_epoch if version >= _REPLICA_STATE_FROM else -1
        return FetchParams(
            FetchIsolation.LOG_END, needs_leader=True, broker_id=BrokerId(broker_id), broker_epoch=BrokerEpoch(epoch)
        )
    isolation = (
        FetchIsolation.LAST_STABLE if request.isolation_level == READ_COMMITTED else FetchIsolation.HIGH_WATERMARK
    )
    if version < _ANY_REPLICA_FROM:
        return FetchParams(isolation, needs_leader=True)
    if not request.rack_id:
        return _COMMITTED_READER if isolation is FetchIsolation.LAST_STABLE else _READER
    return FetchParams(isolation, needs_leader=False, rack=request.rack_id)


def positions_of(request: FetchRequest, *, by_id: bool) -> list[Position]:
    """Return the positions that a request names, for a session that knows its targets."""
    return [
        (
            (topic.topic_id if by_id else topic.topic, p.partition),
            p.fetch_offset,
            p.partition_max_bytes,
            LeaderEpoch(p.current_leader_epoch),
            LeaderEpoch(p.last_fetched_epoch),
            p.log_start_offset,
        )
        for topic in request.topics
        for p in topic.partitions
    ]


def session_request(request: FetchRequest, version: int, reader: FetchParams) -> SessionRequest:
    """Return the part of a request that its session handles."""
    by_id = version >= TOPIC_IDS_FROM
    targets = [
        FetchTarget(
            "" if by_id else topic.topic,
            topic.topic_id if by_id else ZERO_UUID,
            p.partition,
            p.fetch_offset,
            p.partition_max_bytes,
            LeaderEpoch(p.current_leader_epoch),
            LeaderEpoch(p.last_fetched_epoch),
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
    return SessionRequest(request.session_id, request.session_epoch, by_id, reader.is_follower, targets, forgotten)


def fetch_options(request: FetchRequest, context: RequestContext, reader: FetchParams) -> FetchOptions:
    """Return the parameters that apply to all partitions of a request."""
    return FetchOptions(
        reader,
        context.listener,
        context.api_version >= TOPIC_IDS_FROM,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
    )
