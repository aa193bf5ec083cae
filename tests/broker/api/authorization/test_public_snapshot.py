"""Permission to read snapshots of the metadata log on a client listener."""

from typing import Any, cast

import pytest

from broker.api.pipeline.permission import AclOperation, AclResourceType
from broker.api.quorum.fetch_public_snapshot import FetchPublicSnapshotHandler
from protocol.errors import ErrorCode
from protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestTopicSnapshot,
    FetchSnapshotResponse,
)
from tests.broker.api.metadata_harness import LiveCluster, context
from tests.support.fakes.fake_authorizer import GrantedPermissions


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("other", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("__cluster_metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),  # this broker does not serve the topic
    ],
)
def test_snapshots_need_read_on_the_metadata_topic(topic: str, expected: ErrorCode) -> None:
    handler = FetchPublicSnapshotHandler(LiveCluster(), None, cast(Any, None), cluster_id="c")
    asked = FetchSnapshotRequestTopicSnapshot("__cluster_metadata", [FetchSnapshotRequestPartitionSnapshot(0)])
    caller = context(1)
    caller.authorizer = GrantedPermissions([("User:ANONYMOUS", AclOperation.READ, AclResourceType.TOPIC, topic)])
    response = handler(FetchSnapshotRequest(topics=[asked]), caller)
    assert isinstance(response, FetchSnapshotResponse)
    assert [each.error_code for each in response.topics[0].partitions] == [expected]
