"""Evaluation of the leader epochs (KIP-320) and the topic ids (KIP-516) that requests name.

Invariants, by the names in violations:

- RequestsAreFenced: fetches of followers and consumers, OffsetForLeaderEpoch and ListOffsets name the leader epoch that
  their sender knows. A broker with a later one answers FENCED_LEADER_EPOCH, with an earlier one UNKNOWN_LEADER_EPOCH,
  and a request that must be refused never waits.
- UnknownTopicIdsAreRefused: a fetch that names a topic id that is not in the broker's metadata gets UNKNOWN_TOPIC_ID at
  once.
"""

from collections.abc import Iterator
from typing import Any, Final

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from protocol.primitives import Uuid
from tests.simulation.replication.broker import Node
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.simulator import EventLog

_Asked = tuple[ReplicaName, int]
"""A partition and the leader epoch that a request names for it."""

UNKNOWN_EPOCH: Final = -1


class FencingChecker:
    """Checker of the requests that brokers have handled."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def on_served(self, node: Node, request: Any, answer: Any) -> None:
        """Check a handled request; `answer` is a response, or a future one."""
        assert node.broker is not None
        if isinstance(request, FetchRequest):
            self._check_topic_ids(node, request, answer)
        served: set[ReplicaName] | None = None
        for name, epoch in _asked(node, request):
            partition = node.broker.partition(*name)
            if partition is None or epoch in (UNKNOWN_EPOCH, partition.leader_epoch):
                continue
            if served is None:
                served = _served(node, request, answer)
            if name in served:
                self._log.fail(
                    "RequestsAreFenced",
                    f"node {node.id} serves a {type(request).__name__} for {name} in leader epoch {epoch}, and is in "
                    f"{partition.leader_epoch}",
                )
            self._log.counts.add("fenced requests")

    def _check_topic_ids(self, node: Node, request: FetchRequest, answer: Any) -> None:
        assert node.broker is not None
        topics = node.broker.cache.image.topics
        unknown = {topic.topic_id for topic in request.topics if topics.by_id(topic.topic_id) is None}
        if not unknown or (isinstance(answer, FetchResponse) and answer.error_code):
            return
        refused: set[Uuid] = set()
        if isinstance(answer, FetchResponse):
            refused = {
                topic.topic_id
                for topic in answer.responses
                if all(data.error_code == ErrorCode.UNKNOWN_TOPIC_ID for data in topic.partitions)
            }
        if not unknown <= refused:
            self._log.fail(
                "UnknownTopicIdsAreRefused",
                f"node {node.id} serves a fetch for {sorted(map(str, unknown - refused))}, and knows no such topic",
            )


def _asked(node: Node, request: Any) -> Iterator[_Asked]:
    assert node.broker is not None
    match request:
        case FetchRequest():
            for topic in request.topics:
                image = node.broker.cache.image.topics.by_id(topic.topic_id)
                if image is not None:
                    for each in topic.partitions:
                        yield ReplicaName(image.name, each.partition), each.current_leader_epoch
        case OffsetForLeaderEpochRequest():
            for asked in request.topics:
                for one in asked.partitions:
                    yield ReplicaName(asked.topic, one.partition), one.current_leader_epoch
        case ListOffsetsRequest():
            for listed in request.topics:
                for entry in listed.partitions:
                    yield ReplicaName(listed.name, entry.partition_index), entry.current_leader_epoch


def _served(node: Node, request: Any, answer: Any) -> set[ReplicaName]:
    """Return the partitions that a response serves without an error; all that are asked for if the request waits."""
    assert node.broker is not None
    match request, answer:
        case FetchRequest(), FetchResponse():
            names = {topic.topic_id: node.broker.cache.image.topics.by_id(topic.topic_id) for topic in request.topics}
            if answer.error_code:
                return set()
            return {
                ReplicaName(image.name, data.partition_index)
                for topic in answer.responses
                for data in topic.partitions
                if not data.error_code and (image := names.get(topic.topic_id)) is not None
            }
        case OffsetForLeaderEpochRequest(), _ if hasattr(answer, "topics"):
            return {
                ReplicaName(topic.topic, each.partition)
                for topic in answer.topics
                for each in topic.partitions
                if not each.error_code
            }
        case ListOffsetsRequest(), _ if hasattr(answer, "topics"):
            return {
                ReplicaName(topic.name, each.partition_index)
                for topic in answer.topics
                for each in topic.partitions
                if not each.error_code
            }
        case _:
            return {name for name, _ in _asked(node, request)} if isinstance(request, FetchRequest) else set()
