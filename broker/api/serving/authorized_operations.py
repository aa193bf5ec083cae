"""Bit sets of the operations that a client is authorized for: bit n is the operation with number n of the Acl APIs.

Without an authorizer a client is authorized for every operation of a resource type.
"""

from collections.abc import Iterable
from typing import Final

from broker.api.pipeline.permission import (
    CLUSTER_RESOURCE_NAME,
    DESCRIBE_CLUSTER,
    AclOperation,
    AclResourceType,
    Permission,
    Requirement,
)
from broker.api.serving.context import RequestContext

# The client did not ask for the operations.
NOT_REQUESTED: Final = -(2**31)


def operation_bits(operations: Iterable[AclOperation]) -> int:
    """Return the bit set of `operations`."""
    return sum(1 << operation for operation in set(operations))


_OF_TOPIC: Final = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
_OF_CLUSTER: Final = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
_OF_GROUP: Final = (
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
GROUP_OPERATIONS: Final = operation_bits(_OF_GROUP)
TOPIC_OPERATIONS: Final = operation_bits(_OF_TOPIC)
CLUSTER_OPERATIONS: Final = operation_bits(_OF_CLUSTER)


def topic_operations(context: RequestContext, name: str) -> int:
    """Return what the principal may do with the topic."""
    if context.authorizer is None:
        return TOPIC_OPERATIONS
    return _allowed(context, _OF_TOPIC, AclResourceType.TOPIC, name)


def group_operations(context: RequestContext, group_id: str) -> int:
    """Return what the principal may do with the group."""
    if context.authorizer is None:
        return GROUP_OPERATIONS
    return _allowed(context, _OF_GROUP, AclResourceType.GROUP, group_id)


def cluster_operations(context: RequestContext) -> int:
    """Return what the principal may do with the cluster: nothing unless it may describe the cluster."""
    if context.authorizer is None:
        return CLUSTER_OPERATIONS
    if not context.allows(DESCRIBE_CLUSTER, CLUSTER_RESOURCE_NAME):
        return 0
    return _allowed(context, _OF_CLUSTER, AclResourceType.CLUSTER, CLUSTER_RESOURCE_NAME)


def _allowed(
    context: RequestContext, operations: Iterable[AclOperation], resource_type: AclResourceType, name: str
) -> int:
    return operation_bits(
        operation
        for operation in operations
        if context.allows(Requirement(((Permission(operation, resource_type),),)), name)
    )
