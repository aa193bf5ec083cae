"""Permissions that APIs need, as data (KIP-11): operations, resource types, and one constant per combination.

Each route carries a `Requirement`, or `Unrestricted` with the reason why the API needs none. Numbers are those of
Kafka's Acl APIs.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from protocol.lazy_dataclass import lazy_dataclass


class AclOperation(IntEnum):
    """Operations that a principal can be allowed to perform."""

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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclResourceType(IntEnum):
    """Types of resources that operations apply to."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


CLUSTER_RESOURCE_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class Permission(NamedTuple):
    """One operation on resources of one type."""

    operation: AclOperation
    resource_type: AclResourceType


@lazy_dataclass(frozen=True, slots=True)
class Requirement:
    """The permissions that a request needs: at least one of each clause.

    Only the cluster has a fixed resource name. So the authorization stage decides the clauses that name the cluster
    alone, before the handler runs. The names behind the other clauses are in the request: a handler decides them item
    by item, so that an unauthorized topic or group fails alone or is left out of the response.
    """

    clauses: tuple[tuple[Permission, ...], ...]

    @property
    def cluster_clauses(self) -> tuple[tuple[Permission, ...], ...]:
        """The clauses that name the cluster alone."""
        return tuple(
            clause
            for clause in self.clauses
            if all(permission.resource_type is AclResourceType.CLUSTER for permission in clause)
        )

    def __and__(self, other: "Requirement") -> "Requirement":
        """Return a requirement that needs both."""
        return Requirement(self.clauses + other.clauses)

    def __or__(self, other: "Requirement") -> "Requirement":
        """Return a requirement that needs either; both sides have one clause."""
        (own,), (others,) = self.clauses, other.clauses
        return Requirement(((*own, *others),))


@lazy_dataclass(frozen=True, slots=True)
class Unrestricted:
    """No permission is needed, for `reason`."""

    reason: str


def _needs(operation: AclOperation, resource_type: AclResourceType) -> Requirement:
    return Requirement(((Permission(operation, resource_type),),))


READ_TOPIC: Final = _needs(AclOperation.READ, AclResourceType.TOPIC)
WRITE_TOPIC: Final = _needs(AclOperation.WRITE, AclResourceType.TOPIC)
CREATE_TOPIC: Final = _needs(AclOperation.CREATE, AclResourceType.TOPIC)
DELETE_TOPIC: Final = _needs(AclOperation.DELETE, AclResourceType.TOPIC)
ALTER_TOPIC: Final = _needs(AclOperation.ALTER, AclResourceType.TOPIC)
DESCRIBE_TOPIC: Final = _needs(AclOperation.DESCRIBE, AclResourceType.TOPIC)
DESCRIBE_CONFIGS_OF_TOPIC: Final = _needs(AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC)
ALTER_CONFIGS_OF_TOPIC: Final = _needs(AclOperation.ALTER_CONFIGS, AclResourceType.TOPIC)

READ_GROUP: Final = _needs(AclOperation.READ, AclResourceType.GROUP)
DELETE_GROUP: Final = _needs(AclOperation.DELETE, AclResourceType.GROUP)
DESCRIBE_GROUP: Final = _needs(AclOperation.DESCRIBE, AclResourceType.GROUP)
DESCRIBE_CONFIGS_OF_GROUP: Final = _needs(AclOperation.DESCRIBE_CONFIGS, AclResourceType.GROUP)
ALTER_CONFIGS_OF_GROUP: Final = _needs(AclOperation.ALTER_CONFIGS, AclResourceType.GROUP)

CLUSTER_ACTION: Final = _needs(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER)
CREATE_CLUSTER: Final = _needs(AclOperation.CREATE, AclResourceType.CLUSTER)
DELETE_CLUSTER: Final = _needs(AclOperation.DELETE, AclResourceType.CLUSTER)
ALTER_CLUSTER: Final = _needs(AclOperation.ALTER, AclResourceType.CLUSTER)
DESCRIBE_CLUSTER: Final = _needs(AclOperation.DESCRIBE, AclResourceType.CLUSTER)
DESCRIBE_CONFIGS_OF_CLUSTER: Final = _needs(AclOperation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER)
ALTER_CONFIGS_OF_CLUSTER: Final = _needs(AclOperation.ALTER_CONFIGS, AclResourceType.CLUSTER)
IDEMPOTENT_WRITE: Final = _needs(AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER)

WRITE_TRANSACTIONAL_ID: Final = _needs(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID)
TWO_PHASE_COMMIT: Final = _needs(AclOperation.TWO_PHASE_COMMIT, AclResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID: Final = _needs(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID)
DESCRIBE_TOKEN: Final = _needs(AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN)
CREATE_TOKENS_OF_USER: Final = _needs(AclOperation.CREATE_TOKENS, AclResourceType.USER)
DESCRIBE_TOKENS_OF_USER: Final = _needs(AclOperation.DESCRIBE_TOKENS, AclResourceType.USER)

DESCRIBE_CONFIGS_OF_ANY: Final = DESCRIBE_CONFIGS_OF_CLUSTER | DESCRIBE_CONFIGS_OF_TOPIC | DESCRIBE_CONFIGS_OF_GROUP
"""The resource type depends on the request: cluster for brokers, loggers and client metrics."""
ALTER_CONFIGS_OF_ANY: Final = ALTER_CONFIGS_OF_CLUSTER | ALTER_CONFIGS_OF_TOPIC | ALTER_CONFIGS_OF_GROUP

BEFORE_AUTHENTICATION: Final = Unrestricted("clients send it before they are authenticated")
FILTERS_OPERATIONS: Final = Unrestricted("every client may see the cluster; only the authorized operations differ")
ANY_CLIENT: Final = Unrestricted("every client may push metrics, which administrators subscribe to")
TOKEN_OWNER: Final = Unrestricted("the controller accepts the token's owner and renewers only")
