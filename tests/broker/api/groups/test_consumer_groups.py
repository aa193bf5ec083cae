"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, with the other group APIs on consumer groups."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from broker.api.groups.consumer_group_describe import ConsumerGroupDescribeHandler
from broker.api.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatHandler
from broker.api.pipeline.authorization import Authorizer
from broker.api.pipeline.permission import AclOperation, AclResourceType
from broker.config.errors import ConfigError
from broker.config.load import parse_config
from broker.groups.caller import Caller
from broker.groups.consumer.assignors.range import RangeAssignor
from broker.groups.consumer.assignors.uniform import UniformAssignor
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.node.consumer_groups import consumer_group_environment, load_assignors, serves_consumer_groups
from broker.runtime.coordinators.topic_patterns import matching_topics
from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import MemberIdentity
from protocol.messages.metadata_records import ConfigRecord, FeatureLevelRecord
from protocol.messages.offset_fetch import OffsetFetchRequestGroup
from protocol.messages.sync_group import SyncGroupRequest
from protocol.primitives import METADATA_TOPIC_ID, Uuid
from tests.broker.config.test_listeners import COMBINED
from tests.support.fakes.fake_authorizer import GrantedPermissions
from tests.support.harnesses.group_coordinator_harness import GroupCoordinatorHarness, context, topic_id_of
from tests.support.harnesses.group_harness import subscription


def image_of(*records: ConfigRecord | FeatureLevelRecord) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay_all(records)
    return delta.apply(Provenance(0, LeaderEpoch(0), 0))


class PinnedAssignor(UniformAssignor):
    """An assignor that a setting names by its import path."""

    name = "pinned"  # type: ignore[misc]


@pytest_asyncio.fixture
async def harness() -> AsyncIterator[GroupCoordinatorHarness]:
    made = GroupCoordinatorHarness()
    lookups = asyncio.create_task(made.groups.consumer_groups.run())
    yield made
    lookups.cancel()
    made.close()


async def beat(
    harness: GroupCoordinatorHarness, version: int = 1, authorizer: Authorizer | None = None, **fields: Any
) -> ConsumerGroupHeartbeatResponse:
    """Send a heartbeat: that of a new member, but for the fields given."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    answer = ConsumerGroupHeartbeatHandler(harness.groups.consumer_groups)(
        request, replace(context(version), authorizer=authorizer)
    )
    response = answer if isinstance(answer, ConsumerGroupHeartbeatResponse) else await answer
    assert encode_bytes(response, version)
    return response


@pytest.mark.parametrize("version", [0, 1])
async def test_member_joins_and_gets_partitions(harness: GroupCoordinatorHarness, version: int) -> None:
    response = await beat(harness, version)
    assert (response.error_code, response.member_epoch, response.heartbeat_interval_ms) == (0, 1, 5_000)
    assert response.assignment is not None
    (topic,) = response.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (topic_id_of("t"), [0, 1])


async def test_coordinator_names_a_member_of_version_0(harness: GroupCoordinatorHarness) -> None:
    assert (await beat(harness, 0, member_id="")).member_id == "1"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": [ConsumerGroupHeartbeatRequestTopicPartitions()]}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "best"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "t("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
async def test_invalid_heartbeat_is_refused_with_a_message(
    harness: GroupCoordinatorHarness, fields: dict[str, Any], error: ErrorCode
) -> None:
    response = await beat(harness, **fields)
    assert response.error_code == error
    assert response.error_message


async def test_member_without_topics_joins(harness: GroupCoordinatorHarness) -> None:
    response = await beat(harness, subscribed_topic_names=[])
    assert (response.error_code, response.member_epoch) == (0, 1)


async def assigned_by_pattern(
    harness: GroupCoordinatorHarness, pattern: str, authorizer: Authorizer | None = None
) -> set[Uuid]:
    """Subscribe a member to a pattern and return the topics of its first assignment that is not empty."""
    response = await beat(harness, authorizer=authorizer, subscribed_topic_names=None, subscribed_topic_regex=pattern)
    assert response.error_code == 0
    async with asyncio.timeout(10):
        while response.assignment is None or not response.assignment.topic_partitions:
            response = await beat(
                harness,
                authorizer=authorizer,
                member_epoch=response.member_epoch,
                subscribed_topic_names=None,
                topic_partitions=None,
                rebalance_timeout_ms=-1,
            )
            await asyncio.sleep(0)
    return {each.topic_id for each in response.assignment.topic_partitions}


async def test_topics_are_found_by_pattern(harness: GroupCoordinatorHarness) -> None:
    assert await assigned_by_pattern(harness, "[tu]") == {topic_id_of("t"), topic_id_of("u")}


async def test_pattern_finds_only_topics_that_the_member_may_describe(harness: GroupCoordinatorHarness) -> None:
    member = "User:ANONYMOUS"
    authorizer = GrantedPermissions(
        [
            (member, AclOperation.READ, AclResourceType.GROUP, "g"),
            (member, AclOperation.DESCRIBE, AclResourceType.TOPIC, "u"),
        ]
    )
    assert await assigned_by_pattern(harness, "[tu]", authorizer) == {topic_id_of("u")}


async def test_created_partitions_reach_the_next_heartbeat(harness: GroupCoordinatorHarness) -> None:
    await beat(harness)
    harness.lead("t", {2: (1, 0)})
    response = await beat(harness, member_epoch=1, subscribed_topic_names=None, topic_partitions=None)
    assert response.assignment is not None
    assert [each.partitions for each in response.assignment.topic_partitions] == [[0, 1, 2]]
    harness.lead("t", {2: (2, 1)})
    response = await beat(harness, member_epoch=2, subscribed_topic_names=None, topic_partitions=None)
    assert (response.member_epoch, response.assignment) == (2, None)


async def test_disabled_protocol_is_refused(harness: GroupCoordinatorHarness) -> None:
    harness.serves_consumer_groups = False
    assert (await beat(harness)).error_code == ErrorCode.UNSUPPORTED_VERSION
    request = ConsumerGroupDescribeRequest(["g"])
    (group,) = (await ConsumerGroupDescribeHandler(harness.groups.consumer_groups)(request, context(1))).groups
    assert group.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", [0, 1])
async def test_groups_are_described(harness: GroupCoordinatorHarness, version: int) -> None:
    await beat(harness, rack_id="r")
    request = ConsumerGroupDescribeRequest(["g", "other", ""], include_authorized_operations=True)
    handler = ConsumerGroupDescribeHandler(harness.groups.consumer_groups)
    response = await handler(request, context(version))
    assert encode_bytes(response, version)
    group, missing, unnamed = response.groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        "Stable",
        1,
        1,
        "uniform",
    )
    assert group.authorized_operations > 0
    (member,) = group.members
    assert (member.member_id, member.rack_id, member.member_epoch, member.member_type) == ("m", "r", 1, 1)
    assert member.assignment == member.target_assignment
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [("t", [0, 1])]
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert unnamed.error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("linger_ms", [-1, 0, 1])
async def test_requests_of_classic_members_meet_the_members_of_their_group(linger_ms: int) -> None:
    harness = GroupCoordinatorHarness(linger_ms=linger_ms)
    await beat(harness)
    metadata = subscription("t")
    request = JoinGroupRequest("g", 10_000, 60_000, "", None, "consumer", [JoinGroupRequestProtocol("range", metadata)])
    groups = harness.groups
    async with asyncio.timeout(30):
        joined = await groups.join_group(request, Caller("c", "/h", 9))
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request.member_id = joined.member_id
        joined = await groups.join_group(request, Caller("c", "/h", 9))
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 2, "range")
        synced = await groups.sync_group(SyncGroupRequest("g", 2, joined.member_id))
        assert synced.error_code == ErrorCode.NONE
        heartbeat = HeartbeatRequest("g", 2, joined.member_id)
        assert groups.heartbeat(heartbeat).error_code == ErrorCode.NONE
        left = await groups.leave_group("g", [MemberIdentity(joined.member_id), MemberIdentity("n")])
    assert [each.error_code for each in left.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    refused = await groups.sync_group(SyncGroupRequest("g", 2, joined.member_id))
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    harness.close()


async def test_leave_group_removes_consumers_and_leaves_a_classic_group() -> None:
    harness = GroupCoordinatorHarness()
    await beat(harness)
    metadata = subscription("t")
    request = JoinGroupRequest("g", 10_000, 60_000, "", None, "consumer", [JoinGroupRequestProtocol("range", metadata)])
    groups = harness.groups
    async with asyncio.timeout(30):
        request.member_id = (await groups.join_group(request, Caller("c", "/h", 9))).member_id
        assert (await groups.join_group(request, Caller("c", "/h", 9))).error_code == ErrorCode.NONE
        left = await groups.leave_group("g", [MemberIdentity("m")])
    assert [each.error_code for each in left.members] == [ErrorCode.NONE]
    assert (await beat(harness, member_epoch=1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    harness.close()


async def test_groups_are_counted(harness: GroupCoordinatorHarness) -> None:
    await beat(harness)
    await beat(harness, group_id="h", subscribed_topic_names=["u"])
    await beat(harness, group_id="h", member_epoch=-1)
    metrics = harness.groups.metrics()
    assert metrics.groups_by_protocol() == {"classic": 0, "consumer": 2, "streams": 0, "share": 0}
    assert metrics.consumer_groups_by_state() == {"empty": 1, "assigning": 0, "reconciling": 0, "stable": 1}
    assert metrics.consumer_group_rebalances == 3


async def test_classic_description_of_a_consumer_group_is_missing(harness: GroupCoordinatorHarness) -> None:
    await beat(harness)
    (described,) = await harness.groups.describe_groups(["g"], 6)
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert described.error_message == "Group g is not a classic group."
    (described,) = await harness.groups.describe_groups(["g"], 5)
    assert (described.error_code, described.group_state) == (0, "Dead")


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        (None, -1, ErrorCode.NONE),
        ("m", 1, ErrorCode.NONE),
        ("m", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("n", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_offsets_are_fetched_under_the_member_epoch(
    harness: GroupCoordinatorHarness, member_id: str | None, epoch: int, error: ErrorCode
) -> None:
    await beat(harness)
    request = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=None)
    assert (await harness.groups.fetch_offsets(request, require_stable=True)).error_code == error


def test_assignors_are_loaded_by_name_and_path() -> None:
    path = f"{__name__}:PinnedAssignor"
    loaded = load_assignors([path, "range", "org.apache.kafka.coordinator.group.assignor.UniformAssignor"])
    assert [type(each) for each in loaded.values()] == [PinnedAssignor, RangeAssignor, UniformAssignor]
    assert list(loaded) == ["pinned", "range", "uniform"]


@pytest.mark.parametrize("names", [["best"], ["missing.module:Assignor"], ["range", "range"]])
def test_unknown_assignor_is_refused(names: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"group\.consumer\.assignors"):
        load_assignors(names)


def test_group_configs_replace_the_brokers_intervals() -> None:
    config = parse_config(COMBINED | {"group.consumer.heartbeat.interval.ms": "6000"})
    image = image_of(
        ConfigRecord(32, "g", "consumer.session.timeout.ms", "50000"),
        ConfigRecord(32, "out of bounds", "consumer.session.timeout.ms", "90000"),
    )
    environment = consumer_group_environment(config, lambda: image)
    assert environment.intervals("g") == (50_000, 6_000)
    assert environment.intervals("h") == (45_000, 6_000)
    assert environment.intervals("out of bounds") == (60_000, 6_000)


@pytest.mark.parametrize(
    ("level", "protocols", "expected"),
    [(1, "classic,consumer", True), (0, "classic,consumer", False), (1, "classic", False)],
)
def test_feature_and_setting_allow_consumer_groups(level: int, protocols: str, expected: bool) -> None:
    config = parse_config(COMBINED | {"group.coordinator.rebalance.protocols": protocols})
    image = image_of(FeatureLevelRecord("group.version", level))
    assert serves_consumer_groups(config, image) is expected


@pytest.mark.parametrize("is_readable", [True, False])
def test_readable_metadata_topic_can_be_subscribed_to(is_readable: bool) -> None:
    config = parse_config(COMBINED | {"ottla.cluster.metadata.readable": str(is_readable).lower()})
    topics = consumer_group_environment(config, lambda: EMPTY_IMAGE).topics()
    topic = topics.describe("__cluster_metadata")
    assert (topic is not None and topic.partition_count == 1) is is_readable
    assert topics.name_of(METADATA_TOPIC_ID) == ("__cluster_metadata" if is_readable else None)


def test_patterns_match_whole_names() -> None:
    found = matching_topics(["t.*", "a|b"], ["t", "tt", "xt", "a", "ab"])
    assert found == {"t.*": frozenset({"t", "tt"}), "a|b": frozenset({"a"})}
