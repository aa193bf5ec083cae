"""Filters over access control entries, for describing and deleting them (KIP-11, KIP-290)."""

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from broker.metadata.image.security_image import AccessControlEntry, AclsImage
from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import Uuid

ANY: Final = 1  # for resource types, operations and permissions; 0 stands for a value unknown to the client
_WILDCARD: Final = "*"
_PREFIXES_MAX: Final = 249  # characters; the prefixes of a long name cost more than a look at all names of entries
_RESOURCE_TYPES: Final = range(1, 8)
_PATTERNS: Final = range(1, 5)
_OPERATIONS: Final = range(1, 16)
_PERMISSIONS: Final = range(1, 4)


class AclPattern(IntEnum):
    """The pattern type of an entry's resource name; ANY and MATCH occur in filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclFilter(NamedTuple):
    """A filter over entries; None, or ANY for a number, matches everything."""

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
        """Return a filter. Raises KafkaError INVALID_REQUEST for unknown numbers."""
        known = resource_type in _RESOURCE_TYPES and pattern_type in _PATTERNS
        if not (known and operation in _OPERATIONS and permission_type in _PERMISSIONS):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the filter has an unknown type or operation")
        return cls(resource_type, resource_name, pattern_type, principal, host, operation, permission_type)

    def find(self, acls: AclsImage) -> Iterator[tuple[Uuid, AccessControlEntry]]:
        """Yield (id, entry) of all entries that match.

        A filter with a name looks at the entries for that name, and with MATCH at those for its prefixes.
        """
        name = self.resource_name
        if name is None:
            candidates = iter(acls.entries.items())
        elif self.pattern_type == AclPattern.MATCH:
            candidates = acls.named(_names_that_may_apply(name, acls))
        else:
            candidates = acls.named((name,))
        return (each for each in candidates if self.matches(each[1]))

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
        """Whether the name matches.

        MATCH selects all entries that apply to a resource: literal, wildcard and prefixed.
        """
        if self.pattern_type not in (AclPattern.ANY, AclPattern.MATCH, entry.pattern_type):
            return False
        if self.resource_name is None or self.resource_name == entry.resource_name:
            return True
        if self.pattern_type != AclPattern.MATCH:
            return False
        if entry.pattern_type == AclPattern.LITERAL:
            return entry.resource_name == _WILDCARD
        return self.resource_name.startswith(entry.resource_name)


def _names_that_may_apply(name: str, acls: AclsImage) -> set[str]:
    """Return the resource names of entries that can apply to `name`, and perhaps names without entries."""
    if len(name) > _PREFIXES_MAX:
        return {each for each in acls.by_name if each == _WILDCARD or name.startswith(each)}
    return {_WILDCARD, *(name[:length] for length in range(1, len(name) + 1))}
