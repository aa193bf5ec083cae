"""The bit sets that tell a client what it may do: bit n stands for the operation with number n of the Acl APIs.

Without an authorizer everybody may do whatever a resource has to offer.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

# The client did not ask.
NOT_ASKED: Final = -(2**31)


class AclOperation(IntEnum):
    """Operations as the Acl APIs number them."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


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
