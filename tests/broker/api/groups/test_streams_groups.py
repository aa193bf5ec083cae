"""StreamsGroupHeartbeat and StreamsGroupDescribe, and the creation of internal topics."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import pytest_asyncio

from broker.api.groups.streams_group_describe import StreamsGroupDescribeHandler
from broker.api.groups.streams_group_heartbeat import StreamsGroupHeartbeatHandler
from broker.api.serving.forwarding import RequestForwarder
from broker.api.serving.internal_topics import InternalTopicCreation
from broker.api.topics.create_topics import CreateTopicsHandler
from broker.config.load import parse_config
from broker.groups.streams.environment import StreamsGroupSettings
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.net.request import ConnectionInfo
from broker.node.streams_groups import serves_streams_groups, streams_group_environment
from protocol.errors import ErrorCode, KafkaError
from protocol.headers import RequestHeader
from protocol.ids import LeaderEpoch
from protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.metadata_records import ConfigRecord, FeatureLevelRecord
from protocol.messages.offset_fetch import OffsetFetchRequestGroup
from protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from tests.broker.config.test_listeners import COMBINED
from tests.support.harnesses.group_coordinator_harness import GroupCoordinatorHarness, context
from tests.support.harnesses.streams_group_harness import word_count


class FakeForwarder:
    """A controller that creates topics, or refuses to."""

    def __init__(self, harness: GroupCoordinatorHarness) -> None:
        self.harness = harness
        self.requests: list[CreateTopicsRequest] = []
        self.refusal: ErrorCode = ErrorCode.NONE
        self.failure: KafkaError | None = None

    async def forward(
        self,
        request: CreateTopicsRequest,
        header: RequestHeader,
        client: ConnectionInfo,
        _answer: type[CreateTopicsResponse],
        _here: Callable[[], Awaitable[CreateTopicsResponse]],
    ) -> CreateTopicsResponse:
        assert (header.client_id, client.peer_host) == ("client", "127.0.0.1")
        self.requests.append(request)
        if self.failure is not None:
            raise self.failure
        if self.refusal is ErrorCode.NONE:
            self.harness.create_topics(**{topic.name: topic.num_partitions for topic in request.topics})
        results = [CreatableTopicResult(topic.name, error_code=self.refusal) for topic in request.topics]
        return CreateTopicsResponse(topics=results)


class Streams:
    """The handlers of a node, and the creations that they start."""

    def __init__(self) -> None:
        self.harness = GroupCoordinatorHarness()
        self.forwarder = FakeForwarder(self.harness)
        forwarder = cast(RequestForwarder, self.forwarder)
        self.tasks: list[asyncio.Task[None]] = []
        runtime = replace(
            self.harness.process, spawn=lambda work: self.tasks.append(asyncio.get_running_loop().create_task(work))
        )
        creation = InternalTopicCreation(forwarder, cast(CreateTopicsHandler, None), runtime, lambda: 1_000)
        self.heartbeat = StreamsGroupHeartbeatHandler(self.harness.groups.streams_groups, creation)
        self.describe = StreamsGroupDescribeHandler(self.harness.groups.streams_groups)

    async def beat(self, epoch: int = 0, **fields: Any) -> StreamsGroupHeartbeatResponse:
        request = StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
        if epoch == 0:
            request.topology, request.process_id, request.rebalance_timeout_ms = word_count(), "p", 60_000
            request.active_tasks, request.standby_tasks, request.warmup_tasks = [], [], []
        for name, value in fields.items():
            setattr(request, name, value)
        response = await self.heartbeat(request, context(0))
        await asyncio.gather(*self.tasks)
        return response


@pytest_asyncio.fixture
async def streams() -> AsyncIterator[Streams]:
    made = Streams()
    yield made
    made.harness.close()


def details(response: StreamsGroupHeartbeatResponse) -> list[str]:
    return [status.status_detail for status in response.status or ()]


async def test_missing_internal_topics_are_created(streams: Streams) -> None:
    first = await streams.beat()
    assert details(first) == ["Internal topics are missing: c, r"]
    (request,) = streams.forwarder.requests
    asked = [(topic.name, topic.num_partitions, topic.replication_factor) for topic in request.topics]
    assert asked == [("c", 2, -1), ("r", 2, -1)]
    assert [(each.name, each.value) for each in request.topics[0].configs] == [("cleanup.policy", "compact")]
    second = await streams.beat(first.member_epoch)
    assert (second.member_epoch, details(second)) == (3, [])
    assert [(each.subtopology_id, each.partitions) for each in second.active_tasks or ()] == [
        ("0", [0, 1]),
        ("1", [0, 1]),
    ]


async def test_failed_creation_is_reported_and_not_repeated_at_once(streams: Streams) -> None:
    streams.forwarder.refusal = ErrorCode.POLICY_VIOLATION
    await streams.beat()
    response = await streams.beat(2)
    assert details(response) == [
        "Internal topics are missing: c, r; Creation failed: c (POLICY_VIOLATION), r (POLICY_VIOLATION)."
    ]
    assert len(streams.forwarder.requests) == 1


async def test_unavailable_controller_is_reported(streams: Streams) -> None:
    streams.forwarder.failure = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no controller")
    await streams.beat()
    (text,) = details(await streams.beat(2))
    reason = "REQUEST_TIMED_OUT: no controller"
    assert text == f"Internal topics are missing: c, r; Creation failed: c ({reason}), r ({reason})."


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        (
            "__consumer_offsets",
            "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
        ),
        ("a b", "Topic names a b are not valid topic names."),
    ],
)
async def test_topology_with_other_topics_is_invalid(streams: Streams, topic: str, message: str) -> None:
    topology = word_count()
    topology.subtopologies[0].source_topics.append(topic)
    response = await streams.beat(topology=topology)
    assert (response.error_code, response.error_message) == (ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"instance_id": "i"}, "Static membership is not yet supported."),
        ({"task_offsets": []}, "TaskOffsets are not supported yet."),
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"standby_tasks": None}, "StandbyTasks must be empty when (re-)joining."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
        ({"member_epoch": -3}, "MemberEpoch is -3, but must be greater than or equal to -2."),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": 1}, "Topology can only be provided when (re-)joining."),
    ],
)
async def test_invalid_heartbeat_is_refused_with_a_message(
    streams: Streams, fields: dict[str, Any], message: str
) -> None:
    response = await streams.beat(**fields)
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, message)


async def test_group_is_described_with_its_topology(streams: Streams) -> None:
    await streams.beat()
    await streams.beat(2)
    response = await streams.describe(StreamsGroupDescribeRequest(["g", "h"], True), context(0))
    found, missing = response.groups
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 3, 3)
    assert found.topology is not None
    assert [each.subtopology_id for each in found.topology.subtopologies or ()] == ["0", "1"]
    assert found.authorized_operations > 0
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group h not found.")


async def test_disabled_protocol_is_unsupported(streams: Streams) -> None:
    streams.harness.serves_streams_groups = False
    assert (await streams.beat()).error_code == ErrorCode.UNSUPPORTED_VERSION
    response = await streams.describe(StreamsGroupDescribeRequest([""]), context(0))
    assert response.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_groups_are_counted(streams: Streams) -> None:
    await streams.beat()
    metrics = streams.harness.groups.metrics()
    assert metrics.groups_by_protocol() == {"classic": 0, "consumer": 0, "streams": 1, "share": 0}
    assert metrics.streams_groups_by_state()["not_ready"] == 1
    assert metrics.streams_group_rebalances == 1


async def test_members_fetch_offsets_under_their_epoch(streams: Streams) -> None:
    await streams.beat()
    for member, epoch, expected in (
        ("m", 2, ErrorCode.NONE),
        ("m", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, -1, ErrorCode.NONE),
    ):
        request = OffsetFetchRequestGroup("g", member, epoch, None)
        response = await streams.harness.groups.fetch_offsets(request, require_stable=False)
        assert response.error_code == expected, (member, epoch)


def image_of(*records: ConfigRecord | FeatureLevelRecord) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay_all(records)
    return delta.apply(Provenance(0, LeaderEpoch(0), 0))


@pytest.mark.parametrize(
    ("level", "protocols", "expected"),
    [(1, "classic,streams", True), (0, "classic,streams", False), (1, "classic,consumer", False)],
)
def test_feature_and_setting_allow_streams_groups(level: int, protocols: str, expected: bool) -> None:
    config = parse_config({**COMBINED, "group.coordinator.rebalance.protocols": protocols})
    image = image_of(FeatureLevelRecord(name="streams.version", feature_level=level))
    assert serves_streams_groups(config, image) is expected


def test_group_has_its_own_settings_within_the_bounds_of_the_broker() -> None:
    config = parse_config({**COMBINED, "group.streams.num.standby.replicas": "1"})
    records = [
        ConfigRecord(resource_type=32, resource_name="g", name=name, value=value)
        for name, value in (
            ("streams.session.timeout.ms", "50000"),
            ("streams.heartbeat.interval.ms", "20000"),
            ("streams.initial.rebalance.delay.ms", "0"),
            ("streams.num.standby.replicas", "2"),
        )
    ]
    image = image_of(*records)
    environment = streams_group_environment(config, lambda: image)
    assert environment.settings("g") == StreamsGroupSettings(50_000, 15_000, 0, 2)
    assert environment.settings("other") == StreamsGroupSettings(45_000, 5_000, 3_000, 1)
