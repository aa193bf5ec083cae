"""Bit sets of the operations that a client is authorized for: bit n is the operation with number n of the Acl APIs.

Without an authorizer a client is authorized for every operation of a resource type.
"""

from collections.abc import Iterable
from typing import Final

from broker.api.pipeline.permission import AclOperation

# The client did not ask for the operations.
NOT_REQUESTED: Final = -(2**31)


def operation_bits(operations: Iterable[AclOperation]) -> int:
    """Return the bit set of `operations`."""
    return sum(1 << operation for operation in set(operations))


TOPIC_OPERATIONS: Final = operation_bits(
    (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    )
)
CLUSTER_OPERATIONS: Final = operation_bits(
    (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    )
)
