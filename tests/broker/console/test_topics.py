"""The views of topics and configurations."""

from typing import Any

import pytest

from broker.api.pipeline.permission import CLUSTER_RESOURCE_NAME, AclOperation, AclResourceType
from broker.console.answers import SharedAnswers
from broker.console.request import ConsoleError, Json
from broker.console.topic_index import TopicIndex
from broker.console.topics import DESCRIBED_MAX, TopicViews
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from protocol.messages.describe_node import (
    DescribedPartition,
    DescribedSegment,
    DescribeNodeRequest,
    DescribeNodeResponse,
)
from tests.broker.metadata.images import image_with
from tests.support.fakes.fake_authorizer import GrantedPermissions
from tests.support.harnesses.console_harness import ALICE, ConsoleHarness, asked

DESCRIBE_A = (ALICE, AclOperation.DESCRIBE, AclResourceType.TOPIC, "a")
IMAGE = image_with(
    topics={"a": 3, "b": 1, "Archive": 2, "__internal": 1},
    brokers=(1, 2),
    configs={"a": {"retention.ms": "5", "cleanup.policy": "compact"}, "Archive": {"remote.storage.enable": "true"}},
)


def described(node: int, request: DescribeNodeRequest) -> DescribeNodeResponse:
    """Return 100 bytes and the high watermark 7 for each partition."""
    partitions = [
        DescribedPartition(topic.name, index, 1, 2, 7, 8, 100, topic.name == "Archive", 40, 1, 1, 3)
        for topic in request.topics
        for index in topic.partitions
    ]
    for each in partitions if request.max_segments else ():
        each.segments = [DescribedSegment(1, 3, 40, -1, "copy_finished")]
    return DescribeNodeResponse(node_id=node, partitions=partitions)


class Views:
    def __init__(self, authorizer: GrantedPermissions | None = None) -> None:
        self.harness = ConsoleHarness(IMAGE, authorizer)
        self.harness.nodes.answers[DescribeNodeRequest] = described
        index = TopicIndex(self.harness.node.image, lambda image, topic: 1)
        shared = SharedAnswers(self.harness.clock.monotonic_ms, 1_000)
        self.views = TopicViews(self.harness.cluster, index, shared)

    async def names(self, principal: str = ALICE, **parameters: Any) -> list[str]:
        answer = await self.views.page(asked(principal, **parameters))
        assert answer["total"] >= len(answer["items"])
        return [item["name"] for item in answer["items"]]


async def test_list_is_searched_sorted_and_paged() -> None:
    views = Views()
    assert await views.names() == ["Archive", "a", "b"]
    assert await views.names(internal=1) == ["Archive", "__internal", "a", "b"]
    assert await views.names(search="ARCH") == ["Archive"]
    assert await views.names(sort="-partitions", size=2) == ["a", "Archive"]
    assert await views.names(size=2, page=1) == ["b"]


async def test_row_has_sizes_of_all_partitions() -> None:
    views = Views()
    (item,) = (await views.views.page(asked(search="arch")))["items"]
    assert (item["partitions"], item["size_bytes"], item["remote_bytes"], item["tiered"]) == (2, 200, 80, True)


async def test_silent_leader_is_named_and_its_sizes_are_unknown() -> None:
    views = Views()
    views.harness.nodes.silent.add(1)
    answer = await views.views.page(asked())
    assert {item["size_bytes"] for item in answer["items"]} == {None}
    assert [each["broker"] for each in answer["missing"]] == [1]


async def test_principal_sees_only_topics_that_it_may_describe() -> None:
    views = Views(GrantedPermissions([DESCRIBE_A]))
    assert await views.names(internal=1) == ["a"]
    assert await views.names("User:mallory") == []
    assert (await views.views.topic(asked(name="a")))["partitions"] == 3
    for view in (views.views.topic, views.views.partitions, views.views.topic_configs):
        for name in ("b", "nothing"):  # the answers do not differ
            with pytest.raises(ConsoleError, match=f'Topic "{name}" does not exist, or User:alice') as refused:
                await view(asked(name=name))
            assert refused.value.status == 404


async def test_changed_rights_change_the_list() -> None:
    authorizer = GrantedPermissions([DESCRIBE_A])
    views = Views(authorizer)
    assert await views.names() == ["a"]
    authorizer.granted.add((ALICE, AclOperation.DESCRIBE, AclResourceType.TOPIC, "b"))
    authorizer.generation += 1
    assert await views.names() == ["a", "b"]


async def test_topic_tells_its_configs() -> None:
    answer = await Views().views.topic(asked(name="a"))
    assert (answer["cleanup_policy"], answer["retention_ms"], answer["configs_count"]) == ("compact", "5", 2)


async def test_partitions_have_offsets_and_remote_segments() -> None:
    answer = await Views().views.partitions(asked(name="Archive", sort="-partition"))
    assert [item["partition"] for item in answer["items"]] == [1, 0]
    item: Json = answer["items"][0]
    assert (item["leader"], item["isr"], item["replicas"]) == (1, [1, 2], [1, 2])
    assert (item["start_offset"], item["local_start_offset"], item["high_watermark"]) == (1, 2, 7)
    assert item["remote"]["segment_list"] == [
        {"start_offset": 1, "end_offset": 3, "size_bytes": 40, "max_time_ms": None, "state": "copy finished"}
    ]


async def test_partition_without_answer_has_no_offsets() -> None:
    views = Views()
    views.harness.nodes.silent.add(1)
    item = (await views.views.partitions(asked(name="a")))["items"][0]
    assert (item["leader"], item["high_watermark"], item["remote"]) == (1, None, None)


async def test_too_many_partitions_are_not_described() -> None:
    views = Views()
    answer = await views.views.describe({"a": range(DESCRIBED_MAX + 1)})
    assert (answer.by_topic, views.harness.nodes.asked) == ({}, [])


async def test_requests_for_the_same_page_ask_the_leaders_once() -> None:
    views = Views()
    await views.names()
    await views.names()
    assert len(views.harness.nodes.asked) == 1


def configs(code: ErrorCode = ErrorCode.NONE) -> DescribeConfigsResponse:
    secret = DescribeConfigsResourceResult(
        "ssl.key.password", "hunter2", config_source=2, is_sensitive=True, config_type=9
    )
    secret.synonyms = [DescribeConfigsSynonym("ssl.key.password", "hunter2", 4)]
    plain = DescribeConfigsResourceResult("retention.ms", "5", config_source=1, config_type=5)
    return DescribeConfigsResponse(results=[DescribeConfigsResult(code, None, configs=[secret, plain])])


async def test_configs_have_their_source_and_no_secrets() -> None:
    views = Views()
    views.harness.own[DescribeConfigsRequest] = lambda _: configs()
    answer = await views.views.topic_configs(asked(name="a"))
    assert [(each["name"], each["value"], each["source"]) for each in answer["items"]] == [
        ("retention.ms", "5", "topic"),
        ("ssl.key.password", None, "broker"),
    ]
    assert "hunter2" not in str(answer)
    assert views.harness.submitted[0][0] == ALICE


async def test_refusal_of_configs_is_shown() -> None:
    views = Views()
    views.harness.own[DescribeConfigsRequest] = lambda _: configs(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ConsoleError, match="TOPIC_AUTHORIZATION_FAILED") as refused:
        await views.views.topic_configs(asked(name="a"))
    assert refused.value.status == 403


async def test_configs_of_another_broker_come_from_it_after_a_check_of_rights() -> None:
    describe = (ALICE, AclOperation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER, CLUSTER_RESOURCE_NAME)
    views = Views(GrantedPermissions([describe]))
    views.harness.nodes.answers[DescribeConfigsRequest] = lambda node, request: configs()
    answer = await views.views.broker_configs(asked(id=2))
    assert [node for node, _ in views.harness.nodes.asked] == [2]
    assert "hunter2" not in str(answer)
    with pytest.raises(ConsoleError, match="User:bob is not authorized to describe configs of broker 2"):
        await views.views.broker_configs(asked("User:bob", id=2))
    assert views.harness.audit.decisions[-1] == ("User:bob", ApiKey.DESCRIBE_CONFIGS, CLUSTER_RESOURCE_NAME, False)
    with pytest.raises(ConsoleError, match="Node 7 is not registered"):
        await views.views.broker_configs(asked(id=7))


async def test_configs_of_the_own_broker_go_through_its_request_path() -> None:
    views = Views()
    views.harness.own[DescribeConfigsRequest] = lambda _: configs()
    await views.views.broker_configs(asked(id=1))
    assert len(views.harness.submitted) == 1
