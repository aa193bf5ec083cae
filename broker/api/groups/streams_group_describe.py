"""StreamsGroupDescribe (key 89), version 0: state, topology and tasks of streams groups (KIP-1071)."""

from broker.api.pipeline.permission import DESCRIBE_GROUP, DESCRIBE_TOPIC
from broker.api.serving.access import TOPICS_HIDDEN, denied_names
from broker.api.serving.authorized_operations import group_operations
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.streams_group_coordinator import StreamsGroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)


class StreamsGroupDescribeHandler:
    """Answers StreamsGroupDescribe."""

    def __init__(self, groups: StreamsGroupCoordinator) -> None:
        self._groups = groups

    async def __call__(
        self, request: StreamsGroupDescribeRequest, context: RequestContext
    ) -> StreamsGroupDescribeResponse:
        denied = denied_names(context, DESCRIBE_GROUP, request.group_ids)
        groups = await self._groups.describe([each for each in request.group_ids if each not in denied])
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = group_operations(context, group.group_id)
        hidden = denied_names(context, DESCRIBE_TOPIC, (name for group in groups for name in _topics(group)))
        groups = [_without_topics(each) if hidden & _topics(each) else each for each in groups]
        groups += [DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=each) for each in sorted(denied)]
        return StreamsGroupDescribeResponse(groups=groups)


def _topics(group: DescribedGroup) -> set[str]:
    """Return the topics of the topology."""
    names: set[str] = set()
    for each in [] if group.topology is None else group.topology.subtopologies or ():
        names.update(each.source_topics, each.repartition_sink_topics)
        names.update(topic.name for topic in (*each.repartition_source_topics, *each.state_changelog_topics))
    return names


def _without_topics(group: DescribedGroup) -> DescribedGroup:
    return DescribedGroup(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPICS_HIDDEN, group.group_id)
