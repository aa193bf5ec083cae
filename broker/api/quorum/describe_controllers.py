"""DescribeCluster (key 60) on a controller's listener, versions 0-2: the registered controllers (KIP-919).

From version 1 on, a request must ask for controllers; otherwise it has reached the wrong endpoint type.
"""

from broker.api.cluster.describe_cluster import BROKERS, CONTROLLERS
from broker.api.serving.authorized_operations import NOT_REQUESTED, cluster_operations
from broker.api.serving.context import RequestContext
from broker.api.serving.metadata_source import ControllerSource, MetadataSource
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_NOBODY = -1


class DescribeControllersHandler:
    """Answers DescribeCluster on a controller, active or not."""

    def __init__(self, metadata: MetadataSource, controller: ControllerSource, *, cluster_id: str) -> None:
        self._metadata = metadata
        self._controller = controller
        self._cluster_id = cluster_id

    def __call__(self, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
        refusal = _refusal(request.endpoint_type)
        if refusal is not None:
            code, message = refusal
            return DescribeClusterResponse(error_code=code, error_message=message)
        listener = context.listener
        controllers = self._metadata.image.brokers.controllers
        leader = self._controller.controller_id
        operations = cluster_operations(context) if request.include_cluster_authorized_operations else NOT_REQUESTED
        return DescribeClusterResponse(
            endpoint_type=CONTROLLERS,
            cluster_id=self._cluster_id,
            controller_id=_NOBODY if leader is None else leader,
            brokers=[
                DescribeClusterBroker(node_id, *registered.endpoints[listener][:2])
                for node_id, registered in sorted(controllers.items())
                if listener in registered.endpoints
            ],
            cluster_authorized_operations=operations,
        )


def _refusal(endpoint_type: int) -> tuple[ErrorCode, str] | None:
    if endpoint_type == CONTROLLERS:
        return None
    if endpoint_type == BROKERS:
        return ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a controller's endpoint; brokers are described by brokers"
    return ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {endpoint_type} does not exist"
