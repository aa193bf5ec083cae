"""The bit sets that tell a client what it may do: bit n stands for the operation with number n of the Acl APIs.

Without an authorizer everybody may do whatever a resource has to offer.
"""

from collections.abc import Iterable
from typing import Final

from broker.api.pipeline.permission import AclOperation

# The client did not ask.
NOT_ASKED: Final = -(2**31)


def operation_bits(operations: Iterable[AclOperation]) -> int:
    """The bit set of some operations."""
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
