"""The overview: brokers, quorum, totals, remote storage."""

import pytest

from broker.api.pipeline.permission import CLUSTER_RESOURCE_NAME, AclOperation, AclResourceType
from broker.console.overview import NodeSurvey, Overview
from broker.console.request import ConsoleError, Json
from broker.console.sampling import ClusterSample, ClusterSampler
from broker.console.topic_index import TopicIndex
from protocol.errors import ErrorCode
from protocol.messages.describe_node import DescribedLogDir, DescribeNodeRequest, DescribeNodeResponse
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    ReplicaState,
)
from tests.broker.metadata.images import image_with
from tests.support.fakes.fake_authorizer import GrantedPermissions
from tests.support.harnesses.console_harness import ALICE, ConsoleHarness, asked

DESCRIBE = (ALICE, AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_RESOURCE_NAME)


def described(node: int, request: DescribeNodeRequest) -> DescribeNodeResponse:
    return DescribeNodeResponse(
        node_id=node,
        release="1.0",
        uptime_ms=1_000,
        loop_lag_micros=2_500,
        memory_bytes=77,
        snapshot_end_offset=40 if node == 1 else -1,
        snapshot_epoch=2,
        has_remote_storage=True,
        remote_copy_lag_bytes=10,
        remote_copy_errors=1,
        log_dirs=[
            DescribedLogDir("/data/1", None, 1_000, 400, 300),
            DescribedLogDir("/data/2", "Input/output error"),
        ],
    )


def quorum(node: int, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    voters = [ReplicaState(1, log_end_offset=50), ReplicaState(2, log_end_offset=47)]
    part = DescribeQuorumResponsePartitionData(0, leader_id=1, leader_epoch=4, high_watermark=49, current_voters=voters)
    part.observers = [ReplicaState(3, log_end_offset=-1, last_fetch_timestamp=9, last_caught_up_timestamp=8)]
    return DescribeQuorumResponse(topics=[DescribeQuorumResponseTopicData("__cluster_metadata", [part])])


class Views:
    def __init__(self, authorizer: GrantedPermissions | None = None) -> None:
        image = image_with(topics={"a": 4, "b": 1}, brokers=(1, 2, 3), fenced=(3,))
        self.harness = ConsoleHarness(image, authorizer)
        self.harness.nodes.answers[DescribeNodeRequest] = described
        self.harness.nodes.answers[DescribeQuorumRequest] = quorum
        self.survey = NodeSurvey(self.harness.cluster)
        self.sampler = ClusterSampler(self.survey, self.harness.clock)
        index = TopicIndex(self.harness.node.image, lambda image, topic: 3)
        self.overview = Overview(self.harness.cluster, index, self.sampler)


async def test_brokers_have_load_disks_and_counts_of_partitions() -> None:
    views = Views()
    answer = await views.overview.view(asked())
    views.sampler.close()
    first, _, third = answer["brokers"]
    assert (first["state"], first["rack"], first["leaders"], first["replicas"]) == ("running", "rack-1", 5, 5)
    assert (first["is_controller"], first["load"]["loop_lag_max_ms"], first["load"]["memory_bytes"]) == (True, 2.5, 77)
    assert first["log_dirs"] == [
        {"path": "/data/1", "error": None, "total_bytes": 1_000, "usable_bytes": 400, "size_bytes": 300},
        {"path": "/data/2", "error": "Input/output error", "total_bytes": None, "usable_bytes": None, "size_bytes": 0},
    ]
    assert (third["state"], third["load"], third["log_dirs"], third["replicas"]) == ("fenced", None, None, 5)
    assert answer["missing"] == [{"broker": 3, "reason": "the broker is fenced"}]


async def test_quorum_has_the_lag_and_the_snapshot_of_each_replica() -> None:
    views = Views()
    found = (await views.overview.view(asked()))["quorum"]
    views.sampler.close()
    assert (found["leader_id"], found["leader_epoch"], found["high_watermark"]) == (1, 4, 49)
    assert [(each["id"], each["lag"], each["snapshot"]) for each in found["voters"]] == [
        (1, 0, {"offset": 40, "epoch": 2}),
        (2, 3, None),
    ]
    (observer,) = found["observers"]
    assert (observer["id"], observer["lag"], observer["last_caught_up_ms"]) == (3, None, 8)


async def test_totals_are_those_of_all_topics() -> None:
    views = Views()
    answer = await views.overview.view(asked())
    views.sampler.close()
    totals = answer["totals"]
    assert (totals["topics"], totals["partitions"], totals["offline"]) == (2, 5, 0)
    assert (totals["under_replicated"], totals["under_min_isr"]) == (5, 5)
    assert (answer["remote"]["enabled"], answer["remote"]["copy_lag_bytes"], answer["remote"]["copy_errors"]) == (
        True,
        20,
        2,
    )


async def test_quorum_that_does_not_answer_is_unknown() -> None:
    views = Views()
    views.harness.nodes.answers[DescribeQuorumRequest] = lambda node, request: DescribeQuorumResponse(
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    assert (await views.survey())[2]["leader_id"] is None
    views.harness.nodes.silent = {1, 2}
    nodes, missing, found = await views.survey()
    assert (nodes, found["voters"], sorted(each["broker"] for each in missing)) == ({}, [], [1, 2, 3])


async def test_overview_needs_the_right_to_describe_the_cluster() -> None:
    views = Views(GrantedPermissions([DESCRIBE]))
    views.overview.check(asked())
    with pytest.raises(ConsoleError, match="User:bob is not authorized to describe the cluster"):
        await views.overview.view(asked("User:bob"))


async def test_session_tells_the_principal_and_its_rights() -> None:
    views = Views(GrantedPermissions([DESCRIBE]))
    session = await views.overview.session(asked())
    assert (session["principal"], session["authorizer"], session["overview"], session["node_id"]) == (
        ALICE,
        True,
        True,
        1,
    )
    assert not (await views.overview.session(asked("User:bob")))["overview"]


async def test_overview_without_nodes_is_complete() -> None:
    views = Views()
    unknown: Json = {"leader_id": None, "leader_epoch": None, "high_watermark": None, "voters": [], "observers": []}
    answer = await views.overview.live(ClusterSample(5, {}, {}, [], unknown))
    assert [broker["load"] for broker in answer["brokers"]] == [None] * 3
    assert answer["remote"]["enabled"] is False
