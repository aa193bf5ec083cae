"""The views of groups: every kind, lag, rights."""

from typing import Any

import pytest

from broker.api.pipeline.permission import AclOperation, AclResourceType
from broker.console.answers import SharedAnswers
from broker.console.groups import GroupViews
from broker.console.request import ConsoleError
from broker.console.topic_index import TopicIndex
from broker.console.topics import TopicViews
from protocol.errors import ErrorCode
from protocol.messages import consumer_group_describe as consumer
from protocol.messages import describe_groups as classic
from protocol.messages import describe_share_group_offsets as share_offsets
from protocol.messages import offset_fetch
from protocol.messages import share_group_describe as share
from protocol.messages import streams_group_describe as streams
from protocol.messages.describe_node import DescribedPartition, DescribeNodeRequest, DescribeNodeResponse
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tests.broker.metadata.images import image_with
from tests.support.fakes.fake_authorizer import GrantedPermissions
from tests.support.harnesses.console_harness import ALICE, ConsoleHarness, asked

COMMITTED = {"a": [3, 5], "b": [7]}
END = 10
LISTED = {
    1: [ListedGroup("billing", "consumer", "Stable", "consumer"), ListedGroup("old", "consumer", "Empty", "")],
    2: [ListedGroup("queue", "share", "Stable", "share"), ListedGroup("flow", "streams", "Stable", "streams")],
}


def grants(*names: tuple[AclResourceType, str]) -> GrantedPermissions:
    return GrantedPermissions([(ALICE, AclOperation.DESCRIBE, kind, name) for kind, name in names])


def described_consumer(node: int, request: Any) -> consumer.ConsumerGroupDescribeResponse:
    assigned = consumer.Assignment([consumer.TopicPartitions(topic_name="a", partitions=[0])])
    member = consumer.Member("m-1", "static", None, 4, "app", "/10.0.0.2", ["a", "secret"], "x.*", assigned, assigned)
    groups = [consumer.DescribedGroup(0, None, id, "Stable", 6, 6, "uniform", [member]) for id in request.group_ids]
    return consumer.ConsumerGroupDescribeResponse(groups=groups)


def described_share(node: int, request: Any) -> share.ShareGroupDescribeResponse:
    assigned = share.Assignment([share.TopicPartitions(topic_name="b", partitions=[0])])
    members = [share.Member(id, None, 2, "worker", "/10.0.0.3", ["b"], assigned) for id in ("s-1", "s-2")]
    groups = [share.DescribedGroup(0, None, id, "Stable", 3, 3, "simple", members) for id in request.group_ids]
    return share.ShareGroupDescribeResponse(groups=groups)


def described_streams(node: int, request: Any) -> streams.StreamsGroupDescribeResponse:
    topology = streams.Topology(1, [streams.Subtopology("0", ["a"], [], [], [streams.TopicInfo("b")])])
    tasks = streams.Assignment([streams.TaskIds("0", [1])], [streams.TaskIds("0", [0])], [])
    member = streams.Member("t-1", 5, None, None, "flow", "/10.0.0.4", 1, "process-1", assignment=tasks)
    groups = [streams.DescribedGroup(0, None, id, "Stable", 9, 9, topology, [member]) for id in request.group_ids]
    return streams.StreamsGroupDescribeResponse(groups=groups)


def described_classic(node: int, request: Any) -> classic.DescribeGroupsResponse:
    groups = [classic.DescribedGroup(0, None, id, "Empty", "consumer", "range") for id in request.groups]
    return classic.DescribeGroupsResponse(groups=groups)


def committed(node: int, request: Any) -> offset_fetch.OffsetFetchResponse:
    topics = [
        offset_fetch.OffsetFetchResponseTopics(
            name,
            partitions=[offset_fetch.OffsetFetchResponsePartitions(index, each) for index, each in enumerate(offsets)],
        )
        for name, offsets in COMMITTED.items()
    ]
    topics[0].partitions.append(offset_fetch.OffsetFetchResponsePartitions(2, -1))  # no commit
    group = offset_fetch.OffsetFetchResponseGroup(request.groups[0].group_id, topics)
    return offset_fetch.OffsetFetchResponse(groups=[group])


def share_progress(node: int, request: Any) -> share_offsets.DescribeShareGroupOffsetsResponse:
    partition = share_offsets.DescribeShareGroupOffsetsResponsePartition(0, 4, 0, 6)
    topic = share_offsets.DescribeShareGroupOffsetsResponseTopic("b", partitions=[partition])
    group = share_offsets.DescribeShareGroupOffsetsResponseGroup(request.groups[0].group_id, [topic])
    return share_offsets.DescribeShareGroupOffsetsResponse(groups=[group])


def described(node: int, request: DescribeNodeRequest) -> DescribeNodeResponse:
    partitions = [
        DescribedPartition(topic.name, index, 0, 0, END, END, 100)
        for topic in request.topics
        for index in topic.partitions
    ]
    for each in partitions if request.share_group else ():
        each.in_flight_records, each.acquired_records, each.max_delivery_count = 3, 2, 4
    return DescribeNodeResponse(node_id=node, partitions=partitions)


class Views:
    def __init__(self, authorizer: GrantedPermissions | None = None) -> None:
        image = image_with(topics={"a": 3, "b": 1, "__consumer_offsets": 1}, brokers=(1, 2))
        self.harness = ConsoleHarness(image, authorizer)
        answers = self.harness.nodes.answers
        answers[ListGroupsRequest] = lambda node, request: ListGroupsResponse(groups=LISTED[node])
        answers[consumer.ConsumerGroupDescribeRequest] = described_consumer
        answers[share.ShareGroupDescribeRequest] = described_share
        answers[streams.StreamsGroupDescribeRequest] = described_streams
        answers[classic.DescribeGroupsRequest] = described_classic
        answers[offset_fetch.OffsetFetchRequest] = committed
        answers[share_offsets.DescribeShareGroupOffsetsRequest] = share_progress
        answers[DescribeNodeRequest] = described
        shared = SharedAnswers(self.harness.clock.monotonic_ms, 1_000)
        topics = TopicViews(self.harness.cluster, TopicIndex(self.harness.node.image, lambda image, topic: 1), shared)
        self.views = GroupViews(self.harness.cluster, topics, shared)

    async def ids(self, **parameters: Any) -> list[str]:
        return [item["id"] for item in (await self.views.page(asked(**parameters)))["items"]]


async def test_list_has_groups_of_every_kind_with_members() -> None:
    answer = await Views().views.page(asked())
    assert [
        (each["id"], each["type"], each["state"], each["members"], each["coordinator"]) for each in answer["items"]
    ] == [
        ("billing", "consumer", "Stable", 1, 1),
        ("flow", "streams", "Stable", 1, 2),
        ("old", "classic", "Empty", 0, 1),
        ("queue", "share", "Stable", 2, 2),
    ]


async def test_list_is_searched_by_id_and_kind() -> None:
    views = Views()
    assert await views.ids(search="L") == ["billing", "flow", "old"]
    assert await views.ids(type="share") == ["queue"]
    assert await views.ids(sort="-type", size=2) == ["flow", "queue"]
    with pytest.raises(ConsoleError, match='"type" must be one of'):
        await views.ids(type="other")


async def test_lag_is_the_high_watermark_less_the_committed_offset() -> None:
    answer = await Views().views.group(asked(id="billing"))
    rows = answer["partitions"]["items"]
    assert [(row["topic"], row["partition"], row["committed_offset"], row["lag"]) for row in rows] == [
        ("a", 0, 3, 7),
        ("a", 1, 5, 5),
        ("b", 0, 7, 3),
    ]
    assert (answer["lag"], rows[0]["member_id"], rows[1]["member_id"]) == (15, "m-1", None)
    assert [each["lag"] for each in answer["samples"]] == [15]


async def test_lag_of_partitions_is_kept_over_time() -> None:
    views = Views()
    await views.views.group(asked(id="billing"))
    views.harness.clock.advance_ms(2_000)
    views.harness.nodes.answers[DescribeNodeRequest] = lambda node, request: DescribeNodeResponse(
        partitions=[DescribedPartition("a", 0, 0, 0, END + 2, END + 2, 1)]
    )
    rows = (await views.views.group(asked(id="billing")))["partitions"]["items"]
    assert [row["lags"] for row in rows] == [[7, 9], [5, None], [3, None]]


async def test_partitions_are_sorted_by_lag() -> None:
    views = Views()

    async def lags(sort: str) -> list[int]:
        return [row["lag"] for row in (await views.views.group(asked(id="billing", sort=sort)))["partitions"]["items"]]

    assert await lags("-lag") == [7, 5, 3]
    assert await lags("lag") == [3, 5, 7]
    assert await lags("-partition") == [3, 5, 7]


async def test_share_group_has_records_in_flight_and_delivery_counts() -> None:
    answer = await Views().views.group(asked(id="queue"))
    (row,) = answer["partitions"]["items"]
    assert (row["committed_offset"], row["lag"]) == (4, 6)
    assert (row["in_flight"], row["acquired"], row["delivery_count_max"]) == (3, 2, 4)
    assert [member["id"] for member in answer["member_list"]] == ["s-1", "s-2"]


async def test_streams_group_has_tasks_with_their_source_topics() -> None:
    answer = await Views().views.group(asked(id="flow"))
    (member,) = answer["member_list"]
    assert member["tasks"] == {"active": ["0_1"], "standby": ["0_0"], "warmup": []}
    assert member["assignment"] == [{"topic": "a", "partitions": [1]}, {"topic": "b", "partitions": [1]}]


async def test_principal_sees_only_groups_and_topics_that_it_may_describe() -> None:
    views = Views(grants((AclResourceType.GROUP, "billing"), (AclResourceType.TOPIC, "a")))
    assert await views.ids() == ["billing"]
    answer = await views.views.group(asked(id="billing"))
    assert {row["topic"] for row in answer["partitions"]["items"]} == {"a"}
    (member,) = answer["member_list"]
    assert member["subscription"] == ["a", "x.*"]
    assert "secret" not in str(answer)
    for id in ("queue", "nothing"):
        with pytest.raises(ConsoleError, match=f'Group "{id}" does not exist, or User:alice') as refused:
            await views.views.group(asked(id=id))
        assert refused.value.status == 404


async def test_samples_of_viewers_with_other_rights_are_apart() -> None:
    authorizer = grants((AclResourceType.GROUP, "billing"), (AclResourceType.TOPIC, "a"), (AclResourceType.TOPIC, "b"))
    authorizer.granted.add(("User:bob", AclOperation.DESCRIBE, AclResourceType.GROUP, "billing"))
    views = Views(authorizer)
    assert [each["lag"] for each in (await views.views.group(asked(id="billing")))["samples"]] == [15]
    assert [each["lag"] for each in (await views.views.group(asked("User:bob", id="billing")))["samples"]] == [0]


async def test_silent_coordinator_is_named() -> None:
    views = Views()
    views.harness.nodes.silent.add(2)
    answer = await views.views.page(asked())
    assert [item["id"] for item in answer["items"]] == ["billing", "old"]
    assert [each["broker"] for each in answer["missing"]] == [2]
    with pytest.raises(ConsoleError, match="or its coordinator does not answer"):
        await views.views.group(asked(id="queue"))


async def test_coordinator_that_dies_meanwhile_leaves_members_unknown() -> None:
    views = Views()
    await views.views.page(asked())
    views.harness.nodes.silent.add(2)
    (item,) = (await views.views.page(asked(search="queue")))["items"]
    assert (item["state"], item["members"]) == ("Stable", None)
    answer = await views.views.group(asked(id="queue"))
    assert (answer["member_list"], answer["partitions"]["items"], answer["lag"]) == ([], [], 0)


async def test_group_that_cannot_be_described_keeps_its_listed_state() -> None:
    views = Views()
    views.harness.nodes.answers[consumer.ConsumerGroupDescribeRequest] = lambda node, request: (
        consumer.ConsumerGroupDescribeResponse(
            groups=[consumer.DescribedGroup(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None, "billing")]
        )
    )
    (item,) = (await views.views.page(asked(search="billing")))["items"]
    assert (item["state"], item["members"]) == ("Stable", None)


async def test_coordinator_is_the_leader_of_the_offsets_partition() -> None:
    views = Views()
    assert views.views.coordinator("billing") == 1
    views.harness.image = image_with(topics={"a": 1})
    with pytest.raises(ConsoleError, match='"billing" has no coordinator'):
        views.views.coordinator("billing")
