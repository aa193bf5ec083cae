"""Kafka's rules of authorization as a scan over all entries, and random entries and requests."""

from collections.abc import Iterable
from random import Random

from broker.api.pipeline.permission import AclOperation, AclResourceType, Permission
from broker.metadata.image.security_image import AccessControlEntry

LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ALL = 2
PRINCIPALS = ("User:alice", "User:bob", "User:*")
HOSTS = ("10.0.0.1", "10.0.0.2", "*")
NAMES = ("*", "a", "ab", "abc", "abd", "b", "hardcode", "hard")
TYPES = (AclResourceType.TOPIC, AclResourceType.GROUP)
OPERATIONS = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
IMPLIES = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def random_entry(random: Random) -> AccessControlEntry:
    return AccessControlEntry(
        random.choice(TYPES),
        random.choice(NAMES),
        random.choice((LITERAL, PREFIXED)),
        random.choice(PRINCIPALS),
        random.choice(HOSTS),
        random.choice((ALL, *OPERATIONS)),
        random.choice((DENY, ALLOW, ALLOW)),
    )


def is_allowed(
    entries: Iterable[AccessControlEntry],
    principal: str,
    host: str,
    permission: Permission,
    name: str,
    *,
    allow_everyone: bool,
) -> bool:
    """Kafka's StandardAuthorizerData.authorize for a principal that is no super user."""
    found = [each for each in entries if each.resource_type == permission.resource_type and covers(each, name)]
    if not found:
        return allow_everyone
    own = [each for each in found if is_about(each, principal, host)]
    if any(each.permission_type == DENY and each.operation in (ALL, permission.operation) for each in own):
        return False
    wanted = {ALL, permission.operation, *IMPLIES.get(permission.operation, ())}
    return any(each.permission_type == ALLOW and each.operation in wanted for each in own)


def is_allowed_on_some(
    entries: Iterable[AccessControlEntry], principal: str, host: str, permission: Permission, *, allow_everyone: bool
) -> bool:
    """Kafka's Authorizer.authorizeByResourceType."""
    if is_allowed(entries, principal, host, permission, "hardcode", allow_everyone=allow_everyone):
        return True
    own = [
        each
        for each in entries
        if each.resource_type == permission.resource_type
        and is_about(each, principal, host)
        and each.operation in (ALL, permission.operation)
    ]
    denied = {(each.pattern_type, each.resource_name) for each in own if each.permission_type == DENY}
    allowed = {(each.pattern_type, each.resource_name) for each in own if each.permission_type == ALLOW}
    if (LITERAL, "*") in denied:
        return False
    if (LITERAL, "*") in allowed:
        return True
    prefixes = [name for pattern_type, name in denied if pattern_type == PREFIXED]
    return any(
        not (pattern_type == LITERAL and (LITERAL, name) in denied) and not any(map(name.startswith, prefixes))
        for pattern_type, name in allowed
    )


def covers(entry: AccessControlEntry, name: str) -> bool:
    if entry.pattern_type == PREFIXED:
        return name.startswith(entry.resource_name)
    return entry.resource_name in (name, "*")


def is_about(entry: AccessControlEntry, principal: str, host: str) -> bool:
    return entry.principal in (principal, "User:*") and entry.host in (host, "*")
