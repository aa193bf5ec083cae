"""ShareAcknowledge (key 79), versions 1-2: acknowledge acquired records without fetching others (KIP-932).

2+ renewals of locks (KIP-1222).
"""

from collections.abc import Callable

from broker.api.pipeline.permission import READ_GROUP
from broker.api.serving.context import RequestContext
from broker.api.serving.share_member import (
    RENEWAL_FROM,
    ShareLeaderHints,
    acknowledgements_of,
    by_topic,
    denied_partitions,
)
from broker.fetch.share.service import Results, ShareFetchService
from broker.share.sessions import FINAL_EPOCH, ShareMember
from protocol.errors import ErrorCode
from protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


class ShareAcknowledgeHandler:
    """Answers ShareAcknowledge. `is_served` tells whether share groups are on."""

    def __init__(self, shares: ShareFetchService, is_served: Callable[[], bool]) -> None:
        self._shares = shares
        self._is_served = is_served

    async def __call__(self, request: ShareAcknowledgeRequest, context: RequestContext) -> ShareAcknowledgeResponse:
        if not self._is_served():
            return ShareAcknowledgeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if not context.allows(READ_GROUP, request.group_id or ""):
            return ShareAcknowledgeResponse(
                error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED,
                error_message=ErrorCode.GROUP_AUTHORIZATION_FAILED.message,
            )
        if not request.group_id or not request.member_id:
            return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_REQUEST)
        member = ShareMember(request.group_id, request.member_id)
        session = self._shares.proceed(member, request.share_session_epoch)
        if isinstance(session, ErrorCode):
            return ShareAcknowledgeResponse(error_code=session, error_message=session.message)
        batches = (
            ((topic.topic_id, each.partition_index), each.acknowledgement_batches)
            for topic in request.topics
            for each in topic.partitions
        )
        may_renew = context.api_version >= RENEWAL_FROM and request.is_renew_ack
        acknowledgements = dict(acknowledgements_of(batches, may_renew=may_renew))
        denied = denied_partitions(context, self._shares.partitions.image, acknowledgements)
        acknowledgements.update(dict.fromkeys(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        results = await self._shares.acknowledge(member, acknowledgements)
        if request.share_session_epoch == FINAL_EPOCH:
            await self._shares.close(session)
        return self._response(context, member, results)

    def _response(self, context: RequestContext, member: ShareMember, results: Results) -> ShareAcknowledgeResponse:
        partitions = self._shares.partitions
        leaders = ShareLeaderHints(partitions.image, context.listener)
        entries = [
            (
                key[0],
                PartitionData(
                    key[1], error, error.message if error else None, LeaderIdAndEpoch(*leaders.leader_of(key, error))
                ),
            )
            for key, error in results.items()
        ]
        for (topic_id, _), error in results.items():
            topic = partitions.by_id.get(topic_id)
            traffic = partitions.traffic.elsewhere if topic is None else topic.traffic
            traffic.total_share_acknowledgement_requests += 1
            traffic.failed_share_acknowledgement_requests += error is not ErrorCode.NONE
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self._shares.shares.settings(member.group_id).lock_duration_ms,
            responses=[ShareAcknowledgeTopicResponse(*topic) for topic in by_topic(entries).items()],
            node_endpoints=[NodeEndpoint(*address) for address in leaders.hints.addresses()],
        )
