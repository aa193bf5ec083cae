"""A persistent index of ACLs, and the rules by which they combine (KIP-11, KIP-290).

A change makes another index that shares all that is unchanged: k changes among n entries cost O(k log n). A decision
looks up the exact name, `*`, and the prefixes of those lengths that occur in the resource type, and scans nothing.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from immutables import Map

from broker.metadata.image.security_image import AccessControlEntry

LITERAL: Final = 3
PREFIXED: Final = 4
WILDCARD: Final = "*"
ANY_PRINCIPAL: Final = "User:*"

_DENY: Final = 2
_ALLOW: Final = 3
_ALL: Final = 2
_IMPLIED_BY: Final = {8: (3, 4, 6, 7), 10: (11,)}
"""DESCRIBE is implied by READ, WRITE, DELETE and ALTER, DESCRIBE_CONFIGS by ALTER_CONFIGS; by ALLOW entries only."""
_OPERATIONS: Final = range(16)
_DENY_SHIFT: Final = len(_OPERATIONS)


def _bits(operations: Iterable[int]) -> int:
    return sum(1 << operation for operation in set(operations))


_ALLOWED_BY: Final = tuple(_bits((_ALL, each, *_IMPLIED_BY.get(each, ()))) for each in _OPERATIONS)
_DENIED_BY: Final = tuple(_bits((_ALL, each)) << _DENY_SHIFT for each in _OPERATIONS)

_Pattern = tuple[int, int, str]
"""Resource type, pattern type, and the name or prefix."""
_Hosts = Map[str, int]
"""Operations by host as bits: allowed ones from bit 0 on, denied ones from bit 16 on."""
_Principals = Map[str, _Hosts]
_Grant = tuple[int, str, str, int, int, int]
"""Resource type, principal, host, operation, permission type, pattern type."""
_Names = Map[str, bool]
_Lengths = tuple[tuple[int, int], ...]
"""Lengths of prefixes, ascending, with the number of patterns of each length."""


class AclVerdict(NamedTuple):
    """The entries that match a request: whether the resource has any at all, and whether some deny or allow it."""

    has_entries: bool
    is_denied: bool
    is_allowed: bool


NO_ENTRIES: Final = AclVerdict(has_entries=False, is_denied=False, is_allowed=False)


class AclIndex(NamedTuple):
    """An immutable index.

    `copies` counts entries that several ids have, beyond the first; `grants` has the names of the patterns by all else
    that an entry says.
    """

    patterns: Map[_Pattern, _Principals] = Map()
    lengths: Map[int, _Lengths] = Map()
    grants: Map[_Grant, _Names] = Map()
    copies: Map[AccessControlEntry, int] = Map()

    def changed(self, removed: Iterable[AccessControlEntry], added: Iterable[AccessControlEntry]) -> "AclIndex":
        """Return the index without one copy of each removed entry, and with one more of each added entry."""
        change = _Change(self)
        for entry in removed:
            change.remove(entry)
        for entry in added:
            change.add(entry)
        return change.finish()

    def verdict(self, resource_type: int, name: str, operation: int, principal: str, host: str) -> AclVerdict:
        """Return what the entries say about an operation on the resource of that name."""
        find = self.patterns.get
        found = [find((resource_type, LITERAL, name)), find((resource_type, LITERAL, WILDCARD))]
        size = len(name)
        for length, _count in self.lengths.get(resource_type, ()):
            if length > size:
                break
            found.append(find((resource_type, PREFIXED, name[:length])))
        has_entries, operations = False, 0
        for principals in found:
            if principals is None:
                continue
            has_entries = True
            for hosts in (principals.get(principal), principals.get(ANY_PRINCIPAL)):
                if hosts is not None:
                    operations |= hosts.get(host, 0) | hosts.get(WILDCARD, 0)
        if not has_entries:
            return NO_ENTRIES
        return AclVerdict(True, bool(operations & _DENIED_BY[operation]), bool(operations & _ALLOWED_BY[operation]))

    def allows_some(self, resource_type: int, operation: int, principal: str, host: str) -> bool:
        """Whether some entry allows the operation on a name that no entry denies (KIP-679).

        As in Kafka no operation is implied, ALLOW for `*` wins over DENY for anything but `*`, and DENY for a prefix
        covers longer names and prefixes. Costs O(length of name) unless all names of the principal are denied.
        """

        def names(permission: int, pattern_type: int) -> list[_Names]:
            found = (
                self.grants.get((resource_type, who, where, what, permission, pattern_type))
                for who in {principal, ANY_PRINCIPAL}
                for where in {host, WILDCARD}
                for what in {operation, _ALL}
            )
            return [each for each in found if each is not None]

        denied, allowed = names(_DENY, LITERAL), names(_ALLOW, LITERAL)
        if any(WILDCARD in each for each in denied):
            return False
        if any(WILDCARD in each for each in allowed):
            return True
        prefixes = names(_DENY, PREFIXED)
        exact = (name for each in allowed for name in each if not any(name in other for other in denied))
        below = (name for each in names(_ALLOW, PREFIXED) for name in each)
        return any(not _is_covered(name, prefixes) for candidates in (exact, below) for name in candidates)


EMPTY_INDEX: Final = AclIndex()


def _is_covered(name: str, prefixes: list[_Names]) -> bool:
    """Whether `name` begins with one of the prefixes."""
    return any(name[:length] in each for each in prefixes for length in range(1, len(name) + 1))


class _Change:
    """A series of changes to an index."""

    def __init__(self, base: AclIndex) -> None:
        self._patterns = base.patterns.mutate()
        self._lengths = base.lengths
        self._grants = base.grants.mutate()
        self._copies = base.copies

    def finish(self) -> AclIndex:
        return AclIndex(self._patterns.finish(), self._lengths, self._grants.finish(), self._copies)

    def add(self, entry: AccessControlEntry) -> None:
        grant = _grant(entry)
        names = self._grants.get(grant, Map())
        if entry.resource_name in names:
            self._copies = self._copies.set(entry, self._copies.get(entry, 0) + 1)
            return
        self._grants[grant] = names.set(entry.resource_name, True)
        pattern = entry.resource_type, entry.pattern_type, entry.resource_name
        principals = self._patterns.get(pattern)
        if principals is None:
            principals = Map()
            self._count_length(entry, 1)
        hosts = principals.get(entry.principal, Map())
        hosts = hosts.set(entry.host, hosts.get(entry.host, 0) | _bit(entry))
        self._patterns[pattern] = principals.set(entry.principal, hosts)

    def remove(self, entry: AccessControlEntry) -> None:
        copies = self._copies.get(entry, 0)
        if copies:
            self._copies = self._copies.set(entry, copies - 1) if copies > 1 else self._copies.delete(entry)
            return
        grant = _grant(entry)
        names = self._grants[grant].delete(entry.resource_name)
        if names:
            self._grants[grant] = names
        else:
            del self._grants[grant]
        pattern = entry.resource_type, entry.pattern_type, entry.resource_name
        principals = self._patterns[pattern]
        hosts = principals[entry.principal]
        operations = hosts[entry.host] & ~_bit(entry)
        hosts = hosts.set(entry.host, operations) if operations else hosts.delete(entry.host)
        principals = principals.set(entry.principal, hosts) if hosts else principals.delete(entry.principal)
        if principals:
            self._patterns[pattern] = principals
        else:
            del self._patterns[pattern]
            self._count_length(entry, -1)

    def _count_length(self, entry: AccessControlEntry, change: int) -> None:
        """Count a prefix that has its first entry, or has lost its last."""
        if entry.pattern_type == PREFIXED:
            counts = dict(self._lengths.get(entry.resource_type, ()))
            length = len(entry.resource_name)
            counts[length] = counts.get(length, 0) + change
            kept = tuple(sorted((size, count) for size, count in counts.items() if count))
            lengths, of = self._lengths, entry.resource_type
            self._lengths = lengths.set(of, kept) if kept else lengths.delete(of)


def _grant(entry: AccessControlEntry) -> _Grant:
    return (
        entry.resource_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission_type,
        entry.pattern_type,
    )


def _bit(entry: AccessControlEntry) -> int:
    return 1 << entry.operation << (0 if entry.permission_type == _ALLOW else _DENY_SHIFT)
