"""DescribeCluster (key 60), versions 0-2: the brokers of a listener.

Version 1 can ask for controllers (answered by controllers only), version 2 for fenced brokers (KIP-700, KIP-919,
KIP-1073).
"""

from typing import Final

from broker.api.serving.authorized_operations import NOT_REQUESTED, cluster_operations
from broker.api.serving.context import RequestContext
from broker.api.serving.metadata_source import ControllerSource, MetadataSource, visible_controller
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2


class DescribeClusterHandler:
    """Answers DescribeCluster on a broker's listener."""

    def __init__(self, metadata: MetadataSource, controller: ControllerSource, *, cluster_id: str) -> None:
        self._metadata = metadata
        self._controller = controller
        self._cluster_id = cluster_id

    def __call__(self, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
        refusal = _refusal(request.endpoint_type, context.api_version)
        if refusal is not None:
            code, message = refusal
            return DescribeClusterResponse(error_code=code, error_message=message)
        registered, listener = self._metadata.image.brokers, context.listener
        shown = registered.all() if request.include_fenced_brokers else registered.alive()
        operations = cluster_operations(context) if request.include_cluster_authorized_operations else NOT_REQUESTED
        return DescribeClusterResponse(
            endpoint_type=BROKERS,
            cluster_id=self._cluster_id,
            controller_id=visible_controller(registered, listener, self._controller.controller_id),
            brokers=[
                DescribeClusterBroker(
                    broker.id, *broker.endpoints[listener][:2], rack=broker.rack, is_fenced=broker.fenced
                )
                for broker in shown
                if listener in broker.endpoints
            ],
            cluster_authorized_operations=operations,
        )


def _refusal(endpoint_type: int, version: int) -> tuple[ErrorCode, str] | None:
    if endpoint_type == BROKERS:
        return None
    if version == 0:
        return ErrorCode.INVALID_REQUEST, f"endpoint type {endpoint_type} cannot be asked for in version 0"
    if endpoint_type == CONTROLLERS:
        return (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "this is a broker's endpoint; controllers are described by controllers",
        )
    return ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {endpoint_type} does not exist"
