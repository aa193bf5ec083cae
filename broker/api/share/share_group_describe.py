"""ShareGroupDescribe (key 77), version 1: state, epochs and assignments of share groups (KIP-932)."""

from broker.api.pipeline.permission import DESCRIBE_GROUP, DESCRIBE_TOPIC
from broker.api.serving.access import TOPICS_HIDDEN, denied_names
from broker.api.serving.authorized_operations import group_operations
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.share_group_coordinator import ShareGroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.share_group_describe import DescribedGroup, ShareGroupDescribeRequest, ShareGroupDescribeResponse


class ShareGroupDescribeHandler:
    """Answers ShareGroupDescribe."""

    def __init__(self, groups: ShareGroupCoordinator) -> None:
        self._groups = groups

    async def __call__(self, request: ShareGroupDescribeRequest, context: RequestContext) -> ShareGroupDescribeResponse:
        denied = denied_names(context, DESCRIBE_GROUP, request.group_ids)
        groups = await self._groups.describe([each for each in request.group_ids if each not in denied])
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = group_operations(context, group.group_id)
        hidden = denied_names(context, DESCRIBE_TOPIC, (name for group in groups for name in _topics(group)))
        groups = [_without_topics(each) if hidden & _topics(each) else each for each in groups]
        groups += [DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=each) for each in sorted(denied)]
        return ShareGroupDescribeResponse(groups=groups)


def _topics(group: DescribedGroup) -> set[str]:
    """Return the topics that the members are assigned."""
    return {each.topic_name for member in group.members for each in member.assignment.topic_partitions}


def _without_topics(group: DescribedGroup) -> DescribedGroup:
    return DescribedGroup(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPICS_HIDDEN, group.group_id)
