"""DescribeCluster: brokers by listener, fenced ones on request, endpoint types."""

import pytest

from broker.api.cluster.describe_cluster import DescribeClusterHandler
from broker.api.serving.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.broker.api.metadata_harness import FixedMetadata, context
from tests.broker.metadata.images import LISTENER, image_with

IMAGE = image_with(brokers=(1, 2), fenced=(2,))


def ask(request: DescribeClusterRequest, *, version: int = 2, listener: str = LISTENER) -> DescribeClusterResponse:
    source = FixedMetadata(IMAGE)
    return DescribeClusterHandler(source, source, cluster_id="cluster")(request, context(version, listener=listener))


def test_live_brokers_are_listed() -> None:
    response = ask(DescribeClusterRequest())
    assert (response.cluster_id, response.controller_id, response.endpoint_type) == ("cluster", 1, 1)
    assert [(each.broker_id, each.host, each.port, each.rack) for each in response.brokers] == [
        (1, "host-1", 9001, "rack-1")
    ]
    assert response.cluster_authorized_operations == NOT_REQUESTED


def test_fenced_brokers_are_listed_on_request() -> None:
    response = ask(DescribeClusterRequest(include_fenced_brokers=True))
    assert [(each.broker_id, each.is_fenced) for each in response.brokers] == [(1, False), (2, True)]


def test_brokers_without_the_listener_are_left_out() -> None:
    response = ask(DescribeClusterRequest(), listener="OTHER")
    assert (response.brokers, response.controller_id) == ([], -1)


def test_authorized_operations_are_optional() -> None:
    response = ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert response.cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize(
    ("version", "endpoint_type", "code"),
    [
        (1, 2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (2, 3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (0, 2, ErrorCode.INVALID_REQUEST),
    ],
)
def test_other_endpoint_types_are_refused(version: int, endpoint_type: int, code: ErrorCode) -> None:
    response = ask(DescribeClusterRequest(endpoint_type=endpoint_type), version=version)
    assert ErrorCode(response.error_code) is code
    assert response.error_message
