"""ConsumerGroupDescribe (key 69), versions 0-1: state, epochs and assignments of consumer groups (KIP-848).

1+ tells members of the classic protocol from those of the consumer protocol (KIP-1099).
"""

from broker.api.pipeline.permission import DESCRIBE_GROUP, DESCRIBE_TOPIC
from broker.api.serving.access import TOPICS_HIDDEN, denied_names
from broker.api.serving.authorized_operations import group_operations
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.consumer_group_coordinator import ConsumerGroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


class ConsumerGroupDescribeHandler:
    """Answers ConsumerGroupDescribe."""

    def __init__(self, groups: ConsumerGroupCoordinator) -> None:
        self._groups = groups

    async def __call__(
        self, request: ConsumerGroupDescribeRequest, context: RequestContext
    ) -> ConsumerGroupDescribeResponse:
        denied = denied_names(context, DESCRIBE_GROUP, request.group_ids)
        groups = await self._groups.describe([each for each in request.group_ids if each not in denied])
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = group_operations(context, group.group_id)
        hidden = denied_names(context, DESCRIBE_TOPIC, (name for group in groups for name in _topics(group)))
        groups = [_without_topics(each) if hidden & _topics(each) else each for each in groups]
        groups += [DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=each) for each in sorted(denied)]
        return ConsumerGroupDescribeResponse(groups=groups)


def _topics(group: DescribedGroup) -> set[str]:
    """Return the topics that the members are assigned."""
    assignments = (each for member in group.members for each in (member.assignment, member.target_assignment))
    return {each.topic_name for assignment in assignments for each in assignment.topic_partitions}


def _without_topics(group: DescribedGroup) -> DescribedGroup:
    return DescribedGroup(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPICS_HIDDEN, group.group_id)
