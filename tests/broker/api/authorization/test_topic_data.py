"""Permissions on records: each topic of a request is decided by itself (KIP-11)."""

from collections.abc import Callable
from typing import Any

import pytest

from broker.api.pipeline.permission import AclOperation, AclResourceType
from broker.api.records.delete_records import DeleteRecordsHandler
from broker.api.records.describe_producers import DescribeProducersHandler
from broker.api.records.list_offsets import ListOffsetsHandler
from broker.api.records.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from broker.api.records.produce import ProduceHandler
from broker.api.serving.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.primitives import ZERO_UUID, Uuid
from tests.support.fakes.fake_authorizer import Grant, GrantedPermissions
from tests.support.harnesses.data_plane import Answer, DataPlane, batch, topic_id

CLIENT = "User:ANONYMOUS"
TOPIC, CLUSTER = AclResourceType.TOPIC, AclResourceType.CLUSTER
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
Codes = dict[str, set[int]]


class Plane:
    """Two topics, `a` and `b`, and a principal with the granted permissions."""

    def __init__(self, *granted: Grant) -> None:
        self.node = DataPlane()
        self.ids: dict[str, Uuid] = {}
        for name in "ab":
            self.ids[name] = self.node.create_topic(name)
        self.authorizer = GrantedPermissions(granted)

    def context(self, version: int) -> RequestContext:
        context = self.node.context(version)
        context.authorizer = self.authorizer
        return context


def produce(plane: Plane, version: int = 12) -> Codes:
    topics = [
        TopicProduceData(
            name if version < 13 else "",
            plane.ids.get(name, topic_id(99)) if version >= 13 else ZERO_UUID,
            [PartitionProduceData(0, batch(b"v"))],
        )
        for name in ("a", "b", "absent")
    ]
    handler = ProduceHandler(plane.node.partitions, plane.node.runtime, plane.node.verifier)
    response = Answer(handler(ProduceRequest(None, 1, 1000, topics), plane.context(version))).value
    return {
        name: {entry.error_code for entry in topic.partition_responses}
        for name, topic in zip(("a", "b", "absent"), response.responses, strict=True)
    }


def fetch(plane: Plane, version: int = 12, replica: int = -1) -> Codes:
    by_id = version >= 13
    topics = [
        FetchTopic(
            topic="" if by_id else name,
            topic_id=plane.ids.get(name, topic_id(99)) if by_id else ZERO_UUID,
            partitions=[FetchPartition(0, partition_max_bytes=1000)],
        )
        for name in ("a", "b", "absent")
    ]
    request = FetchRequest(
        replica_id=replica if version < 15 else -1,
        replica_state=ReplicaState(replica, 1 if replica >= 0 else -1),
        max_wait_ms=0,
        max_bytes=1000,
        session_epoch=-1,
        topics=topics,
    )
    response = Answer(plane.node.fetch_handler()(request, plane.context(version))).value
    names = {identity: name for name, identity in plane.ids.items()} | {topic_id(99): "absent"}
    return {
        names[topic.topic_id] if by_id else topic.topic: {entry.error_code for entry in topic.partitions}
        for topic in response.responses
    }


def list_offsets(plane: Plane) -> Codes:
    topics = [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, -1)]) for name in ("a", "b", "absent")]
    response = Answer(ListOffsetsHandler(plane.node.partitions)(ListOffsetsRequest(-1, 0, topics), plane.context(7)))
    return {topic.name: {entry.error_code for entry in topic.partitions} for topic in response.value.topics}


def epoch_ends(plane: Plane) -> Codes:
    topics = [OffsetForLeaderTopic(name, [OffsetForLeaderPartition(0, -1, 0)]) for name in ("a", "b", "absent")]
    handler = OffsetForLeaderEpochHandler(plane.node.partitions)
    response = handler(OffsetForLeaderEpochRequest(-1, topics), plane.context(4))
    return {topic.topic: {entry.error_code for entry in topic.partitions} for topic in response.topics}


def delete_records(plane: Plane) -> Codes:
    topics = [DeleteRecordsTopic(name, [DeleteRecordsPartition(0, 0)]) for name in ("a", "b", "absent")]
    handler = DeleteRecordsHandler(plane.node.partitions, plane.node.runtime)
    response = Answer(handler(DeleteRecordsRequest(topics, 1000), plane.context(2))).value
    return {topic.name: {entry.error_code for entry in topic.partitions} for topic in response.topics}


def describe_producers(plane: Plane) -> Codes:
    topics = [TopicRequest(name, [0]) for name in ("a", "b", "absent")]
    response = DescribeProducersHandler(plane.node.partitions)(DescribeProducersRequest(topics), plane.context(0))
    return {topic.name: {entry.error_code for entry in topic.partitions} for topic in response.topics}


REQUESTS: list[Any] = [
    pytest.param(produce, AclOperation.WRITE, id="produce"),
    pytest.param(fetch, AclOperation.READ, id="fetch"),
    pytest.param(list_offsets, AclOperation.DESCRIBE, id="list offsets"),
    pytest.param(epoch_ends, AclOperation.DESCRIBE, id="offset for leader epoch"),
    pytest.param(delete_records, AclOperation.DELETE, id="delete records"),
    pytest.param(describe_producers, AclOperation.READ, id="describe producers"),
]


@pytest.mark.parametrize(("send", "operation"), REQUESTS)
class TestPerTopic:
    def test_without_permission_existing_and_absent_topics_look_the_same(
        self, send: Callable[[Plane], Codes], operation: AclOperation
    ) -> None:
        assert send(Plane()) == {"a": {DENIED}, "b": {DENIED}, "absent": {DENIED}}

    def test_other_operations_do_not_help(self, send: Callable[[Plane], Codes], operation: AclOperation) -> None:
        others = [(CLIENT, each, TOPIC, "a") for each in AclOperation if each is not operation]
        assert send(Plane(*others))["a"] == {DENIED}

    def test_permission_on_one_topic_is_none_on_another(
        self, send: Callable[[Plane], Codes], operation: AclOperation
    ) -> None:
        assert send(Plane((CLIENT, operation, TOPIC, "a"))) == {"a": {0}, "b": {DENIED}, "absent": {DENIED}}

    def test_absent_topic_is_unknown_to_the_authorized(
        self, send: Callable[[Plane], Codes], operation: AclOperation
    ) -> None:
        answered = send(Plane(*((CLIENT, operation, TOPIC, name) for name in ("a", "b", "absent"))))
        assert answered == {"a": {0}, "b": {0}, "absent": {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}


@pytest.mark.parametrize(
    ("send", "operation"),
    [(lambda plane: produce(plane, 13), AclOperation.WRITE), (lambda plane: fetch(plane, 18), AclOperation.READ)],
    ids=["produce", "fetch"],
)
def test_topics_by_id_are_decided_by_name_and_unknown_ids_stay_unknown(
    send: Callable[[Plane], Codes], operation: AclOperation
) -> None:
    answered = send(Plane((CLIENT, operation, TOPIC, "b")))
    assert answered == {"a": {DENIED}, "b": {0}, "absent": {ErrorCode.UNKNOWN_TOPIC_ID}}


@pytest.mark.parametrize("version", [12, 18])
def test_follower_without_cluster_action_fetches_nothing(version: int) -> None:
    plane = Plane(*((CLIENT, AclOperation.READ, TOPIC, name) for name in ("a", "b", "absent")))
    assert fetch(plane, version, replica=2) == {"a": {DENIED}, "b": {DENIED}, "absent": {DENIED}}


def test_follower_with_cluster_action_needs_no_permission_on_topics() -> None:
    plane = Plane((CLIENT, AclOperation.CLUSTER_ACTION, CLUSTER, "kafka-cluster"))
    assert DENIED not in set.union(*fetch(plane, replica=2).values())
    assert epoch_ends(plane)["a"] == {0}


def test_topic_is_decided_once_however_many_partitions_a_request_names() -> None:
    plane = Plane((CLIENT, AclOperation.WRITE, TOPIC, "a"), (CLIENT, AclOperation.READ, TOPIC, "a"))
    data = [PartitionProduceData(index, batch(b"v")) for index in range(5)]
    request = ProduceRequest(None, 1, 1000, [TopicProduceData("a", ZERO_UUID, data)])
    ProduceHandler(plane.node.partitions, plane.node.runtime, plane.node.verifier)(request, plane.context(12))
    partitions = [FetchPartition(index, partition_max_bytes=1000) for index in range(5)]
    topics = [FetchTopic(topic="a", partitions=partitions)]
    fetched = FetchRequest(max_wait_ms=0, max_bytes=1000, session_epoch=-1, topics=topics)
    Answer(plane.node.fetch_handler()(fetched, plane.context(12)))
    assert len(plane.authorizer.asked) == 2


class TestTransactionalProduce:
    def codes(self, plane: Plane, transactional_id: str | None) -> set[int]:
        records = batch(b"v", producer_id=1, producer_epoch=0, sequence=0, transactional=True)
        topics = [TopicProduceData("a", ZERO_UUID, [PartitionProduceData(0, records)])]
        handler = ProduceHandler(plane.node.partitions, plane.node.runtime, plane.node.verifier)
        response = Answer(handler(ProduceRequest(transactional_id, 1, 1000, topics), plane.context(12))).value
        return {entry.error_code for topic in response.responses for entry in topic.partition_responses}

    @pytest.mark.parametrize("transactional_id", [None, "mine"])
    def test_transactional_batches_need_the_right_to_the_transactional_id(self, transactional_id: str | None) -> None:
        plane = Plane((CLIENT, AclOperation.WRITE, TOPIC, "a"))
        assert self.codes(plane, transactional_id) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}

    def test_right_to_the_transactional_id_is_none_to_the_topic(self) -> None:
        plane = Plane((CLIENT, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, "mine"))
        assert self.codes(plane, "mine") == {DENIED}


def test_partition_at_rest_in_a_session_is_judged_anew_when_rights_change() -> None:
    right = (CLIENT, AclOperation.READ, TOPIC, "a")
    plane = Plane(right)
    handler = plane.node.fetch_handler()

    def fetched(session: tuple[int, int], *partitions: FetchPartition) -> tuple[int, list[int]]:
        """Return the session and the error codes of the listed partitions."""
        topics = [FetchTopic("a", ZERO_UUID, list(partitions))] if partitions else []
        request = FetchRequest(session_id=session[0], session_epoch=session[1], max_bytes=1000, topics=topics)
        response = Answer(handler(request, plane.context(12))).value
        return response.session_id, [each.error_code for topic in response.responses for each in topic.partitions]

    session, codes = fetched((0, 0), FetchPartition(0, -1, 0, -1, 0, 1000))
    assert codes == [0]
    assert fetched((session, 1))[1] == []
    plane.authorizer.granted.clear()
    assert fetched((session, 2))[1] == [], "the authorizer does not tell that decisions may change"
    plane.authorizer.generation += 1
    assert fetched((session, 3))[1] == [DENIED]
    plane.authorizer.granted.add(right)
    plane.authorizer.generation += 1
    assert DENIED not in fetched((session, 4))[1]
    plane.node.produce(b"v", topic="a")
    assert fetched((session, 5))[1] == [0]
