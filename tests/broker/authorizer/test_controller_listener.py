"""Requests of nodes to controllers under the standard authorizer: only ClusterAction, or a super user, is let in."""

from collections.abc import Awaitable
from typing import Any

import pytest
from immutables import Map

from broker.api.pipeline.permission import AclOperation, AclResourceType
from broker.api.pipeline.pipeline import RequestPipelines
from broker.api.serving.dispatch import Dispatcher
from broker.authorizer.standard import StandardAuthorizer
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE
from broker.metadata.image.security_image import AccessControlEntry, AclsImage
from broker.net.request import ConnectionInfo, Request
from protocol.api_keys import ApiKey, request_class, response_class
from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode
from protocol.framing import SIZE_BYTES
from protocol.headers import RequestHeader, decode_response
from protocol.primitives import ONE_UUID
from tests.broker.api.serving.test_controller_routes import LISTENER, Node, Observer
from tests.support.fakes.clock import ManualClock

NODES = "User:nodes"
ROOT = "User:root"
BY_NODES = [
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.UPDATE_RAFT_VOTER,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ALTER_PARTITION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ENVELOPE,
]
BY_ADMINISTRATORS = [
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.DESCRIBE_ACLS,
]


def authorizer(*, is_loaded: bool = True) -> StandardAuthorizer:
    """Return an authorizer that allows ClusterAction, and only that, to NODES."""
    made = StandardAuthorizer({ROOT})
    entry = AccessControlEntry(
        AclResourceType.CLUSTER, "kafka-cluster", 3, NODES, "127.0.0.1", AclOperation.CLUSTER_ACTION, 3
    )
    if is_loaded:
        image = EMPTY_IMAGE._replace(acls=AclsImage(Map({ONE_UUID: entry})))
        made.on_metadata(MetadataDelta(EMPTY_IMAGE), image)
    return made


async def code_of(node: Node, key: ApiKey, principal: str, policy: StandardAuthorizer) -> int:
    """Return the error code of the answer to an empty request."""
    connection = ConnectionInfo("c", LISTENER, "127.0.0.1", 1, principal=principal)
    pipeline = RequestPipelines(Dispatcher(node.rows, ManualClock(), Observer(), authorizer=policy)).open(connection)
    request = request_class(key)()
    header = RequestHeader(key, request.MAX_VERSION, 3, "1")
    pending = pipeline(Request(header, memoryview(encode_bytes(request, request.MAX_VERSION)), connection, 0))
    frame = await pending if isinstance(pending, Awaitable) else pending
    assert frame is not None
    answer: Any = decode_response(response_class(key), request.MAX_VERSION, b"".join(frame)[SIZE_BYTES:])[1]
    return int(answer.error_code)


@pytest.mark.parametrize("key", [*BY_NODES, *BY_ADMINISTRATORS])
async def test_principal_without_rights_is_refused_and_nothing_is_done(key: ApiKey) -> None:
    node = Node()
    before = node.cluster.image
    assert await code_of(node, key, "User:mallory", authorizer()) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert node.replica.requests == []
    assert node.cluster.image is before


@pytest.mark.parametrize("key", BY_ADMINISTRATORS)
async def test_cluster_action_does_not_make_an_administrator(key: ApiKey) -> None:
    assert await code_of(Node(), key, NODES, authorizer()) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("principal", [NODES, ROOT])
@pytest.mark.parametrize("key", [ApiKey.BROKER_HEARTBEAT, ApiKey.ALLOCATE_PRODUCER_IDS])
async def test_nodes_and_super_users_are_let_in(key: ApiKey, principal: str) -> None:
    assert await code_of(Node(), key, principal, authorizer()) != ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_before_the_first_image_only_super_users_are_let_in() -> None:
    policy = authorizer(is_loaded=False)
    assert await code_of(Node(), ApiKey.BROKER_HEARTBEAT, NODES, policy) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert await code_of(Node(), ApiKey.BROKER_HEARTBEAT, ROOT, policy) != ErrorCode.UNKNOWN_SERVER_ERROR
