"""StreamsGroupHeartbeat (key 88), version 0: a member of a streams group joins, reports or leaves (KIP-1071).

Internal topics that the topology lacks are created on behalf of the member, in the background. Members see the status
MISSING_INTERNAL_TOPICS until they exist, with the reasons of failed creations.
"""

from collections.abc import Mapping
from typing import Final

from broker.api.pipeline.permission import READ_GROUP
from broker.api.serving.access import require_described, require_group
from broker.api.serving.context import RequestContext
from broker.api.serving.group_caller import caller
from broker.api.serving.internal_topics import InternalTopicCreation
from broker.groups.streams.configuration import StreamsStatus
from broker.groups.streams.heartbeat import StreamsHeartbeatAnswer
from broker.groups.streams.topology import InternalTopic
from broker.groups.streams.validation import topology_topics
from broker.metadata.image.topic_names import invalid_name_reason, is_internal
from broker.runtime.coordinators.streams_group_coordinator import StreamsGroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

_ERRORS_IN_A_STATUS: Final = 3
_DEFAULT: Final = -1
_ERROR_HEARTBEATS: Final = 2  # a failed creation is repeated after this many heartbeats


class StreamsGroupHeartbeatHandler:
    """Answers StreamsGroupHeartbeat."""

    def __init__(self, groups: StreamsGroupCoordinator, creation: InternalTopicCreation) -> None:
        self._groups = groups
        self._creation = creation

    async def __call__(
        self, request: StreamsGroupHeartbeatRequest, context: RequestContext
    ) -> StreamsGroupHeartbeatResponse:
        require_group(context, READ_GROUP, request.group_id)
        require_described(context, topology_topics(request))
        refusal = self._groups.is_enabled() and _refusal(request)
        if refusal:
            return StreamsGroupHeartbeatResponse(error_code=ErrorCode.STREAMS_INVALID_TOPOLOGY, error_message=refusal)
        answer = await self._groups.heartbeat(request, caller(context))
        if answer.missing_topics:
            self._create(answer, context)
        return answer.response

    def _create(self, answer: StreamsHeartbeatAnswer, context: RequestContext) -> None:
        topics = [_creatable(topic) for topic in answer.missing_topics]
        self._creation.request(topics, context, answer.response.heartbeat_interval_ms * _ERROR_HEARTBEATS)
        errors = self._creation.errors(topic.name for topic in topics)
        if errors:
            for status in answer.response.status or ():
                if status.status_code == StreamsStatus.MISSING_INTERNAL_TOPICS:
                    status.status_detail += f"; Creation failed: {_summary(errors)}."


def _refusal(request: StreamsGroupHeartbeatRequest) -> str | None:
    """Return why the topology cannot be accepted from any member; None if it may be."""
    topics = list(topology_topics(request))
    internal = [topic for topic in topics if is_internal(topic)]
    if internal:
        return f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
    invalid = [topic for topic in topics if invalid_name_reason(topic) is not None]
    return f"Topic names {','.join(invalid)} are not valid topic names." if invalid else None


def _creatable(topic: InternalTopic) -> CreatableTopic:
    configs = [CreatableTopicConfig(name, value) for name, value in topic.configs]
    return CreatableTopic(topic.name, topic.partitions, topic.replication_factor or _DEFAULT, configs=configs)


def _summary(errors: Mapping[str, str]) -> str:
    shown = ", ".join(f"{name} ({reason})" for name, reason in [*errors.items()][:_ERRORS_IN_A_STATUS])
    hidden = len(errors) - _ERRORS_IN_A_STATUS
    return f"{shown} and {hidden} more" if hidden > 0 else shown
