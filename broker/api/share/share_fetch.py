"""ShareFetch (key 78), versions 1-2: acquire records of share partitions, and acknowledge others (KIP-932).

2+ acquire modes (KIP-1206), and renewals of locks (KIP-1222), which no request combines with a fetch.
"""

from collections.abc import Callable, Mapping
from typing import Final

from broker.api.pipeline.permission import READ_GROUP
from broker.api.pipeline.quota import FetchQuota, mute, report_throttle
from broker.api.serving.context import RequestContext
from broker.api.serving.share_member import (
    RENEWAL_FROM,
    ShareLeaderHints,
    acknowledgements_of,
    by_topic,
    denied_partitions,
)
from broker.fetch.share.rounds import SharedRecords, ShareFetchOptions, fetch_errors
from broker.fetch.share.service import Results, ShareFetchService
from broker.share.records import AcquireMode
from broker.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ShareFetchSession,
    ShareMember,
    ShareSession,
    TopicPartitionId,
)
from protocol.errors import ErrorCode
from protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

_NOTHING: Final = SharedRecords()
_DENIED: Final = SharedRecords(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class ShareFetchHandler:
    """Answers ShareFetch.

    `max_bytes` is the broker's limit for a response (`fetch.max.bytes`). `is_served` tells whether share groups are on.
    `quota` limits consumers, None does not.
    """

    def __init__(
        self,
        shares: ShareFetchService,
        max_bytes: int,
        is_served: Callable[[], bool],
        quota: FetchQuota | None = None,
    ) -> None:
        self._shares = shares
        self._max_bytes = max_bytes
        self._is_served = is_served
        self._quota = quota

    async def __call__(self, request: ShareFetchRequest, context: RequestContext) -> ShareFetchResponse:
        if not self._is_served():
            return ShareFetchResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if not context.allows(READ_GROUP, request.group_id or ""):
            return ShareFetchResponse(
                error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED,
                error_message=ErrorCode.GROUP_AUTHORIZATION_FAILED.message,
            )
        if not _is_valid(request):
            return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        session = self._shares.open(_session_request(request, context), context.connection)
        if isinstance(session, ErrorCode):
            return ShareFetchResponse(error_code=session, error_message=session.message)
        batches = (
            ((topic.topic_id, each.partition_index), each.acknowledgement_batches)
            for topic in request.topics
            for each in topic.partitions
        )
        may_renew = context.api_version >= RENEWAL_FROM and request.is_renew_ack
        acknowledgements = dict(acknowledgements_of(batches, may_renew=may_renew))
        image = self._shares.partitions.image
        denied = denied_partitions(context, image, (*session.partitions, *acknowledgements))
        acknowledgements.update(dict.fromkeys(denied & acknowledgements.keys(), ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        results = await self._shares.acknowledge(session.member, acknowledgements)
        if request.share_session_epoch == FINAL_EPOCH:
            await self._shares.close(session)
            return self._response(context, session, results, {})
        rounds = await self._shares.fetch(session, self._options(request), context.when_input_ended, denied)
        is_full = request.share_session_epoch == INITIAL_EPOCH and rounds.options.max_records > 0
        fetched = {**dict.fromkeys(session.partitions, _NOTHING), **rounds.results} if is_full else rounds.results
        refused = dict.fromkeys(denied & session.partitions.keys(), _DENIED)
        response = self._response(context, session, results, {**fetched, **refused})
        self._charge(context, response, rounds.size_bytes)
        return response

    def _options(self, request: ShareFetchRequest) -> ShareFetchOptions:
        return ShareFetchOptions(
            request.max_wait_ms,
            min(request.min_bytes, request.max_bytes),
            min(request.max_bytes, self._max_bytes),
            0 if request.max_bytes <= 0 else request.max_records,
            request.batch_size,
            AcquireMode(request.share_acquire_mode),
        )

    def _charge(self, context: RequestContext, response: ShareFetchResponse, size_bytes: int) -> None:
        """Charge records to the client's quota. They are acquired, so a throttled client has them all the same."""
        if self._quota is None or not self._quota.is_enabled:
            return
        throttle_ms = self._quota.fetch_throttle_ms(context.request, size_bytes)
        if throttle_ms > 0:
            mute(context.connection, throttle_ms)
            report_throttle(response, throttle_ms)

    def _response(
        self,
        context: RequestContext,
        session: ShareSession,
        acknowledged: Results,
        fetched: Mapping[TopicPartitionId, SharedRecords],
    ) -> ShareFetchResponse:
        """List the partitions with acknowledgements, and those in `fetched`: all of a new session, as in Kafka."""
        leaders = ShareLeaderHints(self._shares.partitions.image, context.listener)
        entries = [
            (key[0], _entry(key, leaders, acknowledged.get(key, ErrorCode.NONE), fetched.get(key, _NOTHING)))
            for key in dict.fromkeys((*acknowledged, *fetched))
        ]
        for key in fetched:
            self._count(key)
        self._shares.partitions.traffic.elsewhere.failed_share_fetch_requests += fetch_errors(fetched)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self._shares.shares.settings(session.member.group_id).lock_duration_ms,
            responses=[ShareFetchableTopicResponse(*topic) for topic in by_topic(entries).items()],
            node_endpoints=[NodeEndpoint(*address) for address in leaders.hints.addresses()],
        )

    def _count(self, key: TopicPartitionId) -> None:
        topic = self._shares.partitions.by_id.get(key[0])
        traffic = self._shares.partitions.traffic.elsewhere if topic is None else topic.traffic
        traffic.total_share_fetch_requests += 1


def _is_valid(request: ShareFetchRequest) -> bool:
    """Whether the member is named, and a renewal fetches nothing."""
    if not request.group_id or not request.member_id or request.share_session_epoch < FINAL_EPOCH:
        return False
    if request.share_acquire_mode not in AcquireMode.__members__.values():
        return False
    wanted = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
    return not request.is_renew_ack or not any(each > 0 for each in wanted)


def _session_request(request: ShareFetchRequest, context: RequestContext) -> ShareFetchSession:
    assert request.group_id is not None
    assert request.member_id is not None
    return ShareFetchSession(
        ShareMember(request.group_id, request.member_id),
        request.share_session_epoch,
        context.connection.connection_id,
        tuple((topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions),
        tuple((topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions),
        any(each.acknowledgement_batches for topic in request.topics for each in topic.partitions),
    )


def _entry(
    key: TopicPartitionId, leaders: ShareLeaderHints, acknowledged: ErrorCode, fetched: SharedRecords
) -> PartitionData:
    return PartitionData(
        key[1],
        fetched.error,
        fetched.error.message if fetched.error else None,
        acknowledged,
        acknowledged.message if acknowledged else None,
        LeaderIdAndEpoch(*leaders.leader_of(key, fetched.error, acknowledged)),
        fetched.records,
        [AcquiredRecords(*each) for each in fetched.acquired],
    )
