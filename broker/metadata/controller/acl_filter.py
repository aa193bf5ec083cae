"""Which access control entries a filter means: those to describe, those to delete (KIP-11, KIP-290)."""

from enum import IntEnum
from typing import Final, NamedTuple

from broker.metadata.image.security_image import AccessControlEntry
from protocol.errors import ErrorCode, KafkaError

ANY: Final = 1  # of resource types, operations and permissions alike; 0 is what a client did not know
_WILDCARD: Final = "*"
_RESOURCE_TYPES: Final = range(1, 8)
_PATTERNS: Final = range(1, 5)
_OPERATIONS: Final = range(1, 16)
_PERMISSIONS: Final = range(1, 4)


class AclPattern(IntEnum):
    """How an entry's resource name is meant; in filters also any of both, or whatever applies to a name."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclFilter(NamedTuple):
    """Matches entries; None, or 1 where a number stands, matches everything."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    @classmethod
    def checked(
        cls,
        resource_type: int,
        resource_name: str | None,
        pattern_type: int,
        principal: str | None,
        host: str | None,
        operation: int,
        permission_type: int,
    ) -> "AclFilter":
        """Raises KafkaError INVALID_REQUEST for numbers that nobody knows."""
        known = resource_type in _RESOURCE_TYPES and pattern_type in _PATTERNS
        if not (known and operation in _OPERATIONS and permission_type in _PERMISSIONS):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the filter has an unknown kind of resource, pattern or entry")
        return cls(resource_type, resource_name, pattern_type, principal, host, operation, permission_type)

    def matches(self, entry: AccessControlEntry) -> bool:
        return (
            self.resource_type in (ANY, entry.resource_type)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission_type in (ANY, entry.permission_type)
            and self._matches_name(entry)
        )

    def _matches_name(self, entry: AccessControlEntry) -> bool:
        """By MATCH an entry is meant if it bears on a resource of the name: a wildcard and prefixes do."""
        if self.pattern_type not in (AclPattern.ANY, AclPattern.MATCH, entry.pattern_type):
            return False
        if self.resource_name is None or self.resource_name == entry.resource_name:
            return True
        if self.pattern_type != AclPattern.MATCH:
            return False
        if entry.pattern_type == AclPattern.LITERAL:
            return entry.resource_name == _WILDCARD
        return self.resource_name.startswith(entry.resource_name)
