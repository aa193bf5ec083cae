"""Access control lists as Kafka's tools write them, and requests about them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from broker.cli.shared.target import AdminClient
from broker.client import raise_for
from protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

ANY: Final = 1
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = range(2, 8)
DENY: Final = 2
ALLOW: Final = 3
LITERAL: Final = 3
PATTERN_TYPES: Final[Mapping[str, int]] = {"ANY": ANY, "MATCH": 2, "LITERAL": LITERAL, "PREFIXED": 4}
SPECIFIC_PATTERNS: Final = (LITERAL, PATTERN_TYPES["PREFIXED"])

_RESOURCE_TYPES: Final = (
    *("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"),
)
_PATTERN_NAMES: Final = {number: name for name, number in PATTERN_TYPES.items()}
_PERMISSIONS: Final = ("UNKNOWN", "ANY", "DENY", "ALLOW")
_OPERATIONS: Final = (
    *("UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"),
    *("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"),
)
_NUMBERS: Final = {name: number for number, name in enumerate(_OPERATIONS)}
_BY_WRITTEN_NAME: Final = {name.replace("_", ""): number for name, number in _NUMBERS.items()}

ALL: Final = _NUMBERS["ALL"]
READ: Final = _NUMBERS["READ"]
WRITE: Final = _NUMBERS["WRITE"]
CREATE: Final = _NUMBERS["CREATE"]
DESCRIBE: Final = _NUMBERS["DESCRIBE"]
IDEMPOTENT_WRITE: Final = _NUMBERS["IDEMPOTENT_WRITE"]

OPERATION_NAMES: Final = tuple(name.title().replace("_", "") for name in _OPERATIONS[ALL:])
"""The operations as users write them: All, Read, …, DescribeConfigs."""

_SUPPORTED: Final[Mapping[int, str]] = {
    TOPIC: "READ WRITE CREATE DESCRIBE DELETE ALTER DESCRIBE_CONFIGS ALTER_CONFIGS",
    GROUP: "READ DESCRIBE DELETE DESCRIBE_CONFIGS ALTER_CONFIGS",
    CLUSTER: "CREATE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE ALTER DESCRIBE",
    TRANSACTIONAL_ID: "DESCRIBE WRITE TWO_PHASE_COMMIT",
    DELEGATION_TOKEN: "DESCRIBE",
    USER: "CREATE_TOKENS DESCRIBE_TOKENS",
}


class ResourceFilter(NamedTuple):
    """A resource pattern, or a filter over such patterns. Its text is that of Kafka's tools."""

    resource_type: int = ANY
    name: str | None = None
    pattern_type: int = ANY

    def __str__(self) -> str:
        name = "<any>" if self.name is None else self.name
        pattern_type = _PATTERN_NAMES[self.pattern_type]
        return f"ResourcePattern(resourceType={self.type_name}, name={name}, patternType={pattern_type})"

    @property
    def type_name(self) -> str:
        return _RESOURCE_TYPES[self.resource_type]


CLUSTER_RESOURCE: Final = ResourceFilter(CLUSTER, "kafka-cluster", LITERAL)


class AclRule(NamedTuple):
    """Everything that an ACL says beside its resource. Its text is that of Kafka's tools."""

    principal: str | None
    host: str | None
    operation: int
    permission: int

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={_OPERATIONS[self.operation]}, "
            f"permissionType={_PERMISSIONS[self.permission]})"
        )

    def document(self) -> dict[str, object]:
        """Return the rule for JSON."""
        names = {"operation": _OPERATIONS[self.operation], "permissionType": _PERMISSIONS[self.permission]}
        return {"principal": self.principal, "host": self.host, **names}


ANY_RULE: Final = AclRule(None, None, ANY, ANY)

Acls = dict[ResourceFilter, list[AclRule]]
"""Rules by resource."""


def operation_number(text: str) -> int:
    """Return the number of an operation, written in any case and without underscores; 0 for any other text."""
    return _BY_WRITTEN_NAME.get(text.strip().upper(), 0)


def supported_operations(resource_type: int) -> tuple[int, ...]:
    """Return the operations that resources of a type support."""
    return (*(_NUMBERS[name] for name in _SUPPORTED[resource_type].split()), ALL)


def written_name(operation: int) -> str:
    """Return the name of an operation as users write it."""
    return _OPERATIONS[operation].title().replace("_", "")


def _filter(resource: ResourceFilter, rule: AclRule) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    """Return the fields of a filter, in the order of the requests."""
    return (*resource, rule.principal, rule.host, rule.operation, rule.permission)


def describe_acls(admin: AdminClient, resource: ResourceFilter) -> Acls:
    """Return the ACLs that match, sorted. Raises KafkaError."""
    request = DescribeAclsRequest(*_filter(resource, ANY_RULE))
    answer = admin.retrying(lambda: _described(admin, request))
    found: Acls = {}
    for each in answer.resources:
        rules = [AclRule(acl.principal, acl.host, acl.operation, acl.permission_type) for acl in each.acls]
        found[ResourceFilter(each.resource_type, each.resource_name, each.pattern_type)] = sorted(rules)
    return dict(sorted(found.items()))


def _described(admin: AdminClient, request: DescribeAclsRequest) -> DescribeAclsResponse:
    answer = admin.call(request, DescribeAclsResponse)
    raise_for(answer.error_code, "the access control lists", answer.error_message)
    return answer


def create_acls(admin: AdminClient, resource: ResourceFilter, rules: Iterable[AclRule]) -> None:
    """Create ACLs of one resource. Raises KafkaError for the first that cannot be created."""
    creations = [
        AclCreation(
            resource.resource_type,
            resource.name or "",
            resource.pattern_type,
            rule.principal or "",
            rule.host or "",
            rule.operation,
            rule.permission,
        )
        for rule in rules
    ]

    def attempt() -> None:
        for result in admin.call(CreateAclsRequest(creations), CreateAclsResponse).results:
            raise_for(result.error_code, str(resource), result.error_message)

    admin.retrying(attempt)


def delete_acls(admin: AdminClient, resource: ResourceFilter, rules: Sequence[AclRule]) -> None:
    """Delete these ACLs of the matching resources, or all without rules. Raises KafkaError for the first error."""
    filters = [DeleteAclsFilter(*_filter(resource, rule)) for rule in rules or (ANY_RULE,)]

    def attempt() -> None:
        for result in admin.call(DeleteAclsRequest(filters), DeleteAclsResponse).filter_results:
            raise_for(result.error_code, str(resource), result.error_message)
            for acl in result.matching_acls:
                raise_for(acl.error_code, str(resource), acl.error_message)

    admin.retrying(attempt)
