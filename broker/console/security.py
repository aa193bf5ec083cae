"""ACLs, client quotas and SCRAM users, without secrets."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from broker.api.pipeline.permission import (
    CLUSTER_RESOURCE_NAME,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS_OF_CLUSTER,
    AclOperation,
    AclResourceType,
)
from broker.console.cluster import ConsoleCluster
from broker.console.listing import KeptListing, RowListing
from broker.console.request import ConsoleRequest, Json, paged
from broker.metadata.image.quota_image import QuotaEntity
from broker.metadata.image.security_image import AccessControlEntry, ScramMechanism
from protocol.primitives import Uuid

_PATTERNS: Final = {1: "ANY", 2: "MATCH", 3: "LITERAL", 4: "PREFIXED"}
_OPERATIONS: Final = {1: "ANY", 2: "ALL", **{int(each): each.name for each in AclOperation}}
_RESOURCES: Final = {1: "ANY", **{int(each): each.name for each in AclResourceType}}
_PERMISSIONS: Final = {1: "ANY", 2: "DENY", 3: "ALLOW"}


class SecurityViews:
    """The views `acls`, `quotas` and `users`."""

    def __init__(self, cluster: ConsoleCluster) -> None:
        self._cluster = cluster
        self._acls: KeptListing[AccessControlEntry] = KeptListing()
        self._quotas: KeptListing[_Quota] = KeptListing()
        self._users: KeptListing[str] = KeptListing()

    async def acls(self, request: ConsoleRequest) -> Json:
        """Return a page of the ACLs."""
        self._cluster.require(request, DESCRIBE_CLUSTER, CLUSTER_RESOURCE_NAME, "describe ACLs")
        page = request.page(("principal", "resource_name"))
        entries = self._cluster.image.acls.entries
        found = await self._acls.of(entries, lambda: _acl_listing(entries)).select(page)
        return paged([_acl(each) for each in found.rows], page, found.total)

    async def quotas(self, request: ConsoleRequest) -> Json:
        """Return a page of the client quotas; a null name stands for the default entity."""
        self._cluster.require(request, DESCRIBE_CONFIGS_OF_CLUSTER, CLUSTER_RESOURCE_NAME, "describe client quotas")
        page = request.page(("entity",))
        entities = self._cluster.image.client_quotas.entities
        found = await self._quotas.of(entities, lambda: _quota_listing(entities)).select(page)
        items: list[Json] = [
            {
                "entity": [{"type": kind, "name": name} for kind, name in quota.parts],
                "values": dict(sorted(quota.values.items())),
            }
            for quota in found.rows
        ]
        return paged(items, page, found.total)

    async def users(self, request: ConsoleRequest) -> Json:
        """Return a page of the users with SCRAM credentials: mechanisms and iterations."""
        self._cluster.require(request, DESCRIBE_CLUSTER, CLUSTER_RESOURCE_NAME, "describe users")
        page = request.page(("name",))
        credentials = self._cluster.image.scram.credentials
        found = await self._users.of(
            credentials, lambda: RowListing(sorted({name for _, name in credentials}), str)
        ).select(page)
        items: list[Json] = [
            {
                "name": name,
                "mechanisms": [
                    {"mechanism": each.name.replace("_", "-"), "iterations": credentials[each, name].iterations}
                    for each in sorted(ScramMechanism)
                    if (each, name) in credentials
                ],
            }
            for name in found.rows
        ]
        return paged(items, page, found.total)


class _Quota(NamedTuple):
    """The entity's parts, users before clients, and its limits by key."""

    parts: Sequence[tuple[str, str | None]]
    values: Mapping[str, float]

    @property
    def text(self) -> str:
        return " ".join(f"{kind} {name or 'default'}" for kind, name in self.parts)


def _acl_listing(entries: Mapping[Uuid, AccessControlEntry]) -> RowListing[AccessControlEntry]:
    rows = sorted(entries.values(), key=lambda each: (each.principal, each.resource_name, each.operation))
    return RowListing(
        rows,
        lambda each: f"{each.principal}\n{each.resource_name}",
        {"resource_name": lambda each: each.resource_name},
    )


def _acl(entry: AccessControlEntry) -> Json:
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": _OPERATIONS.get(entry.operation, "UNKNOWN"),
        "permission": _PERMISSIONS.get(entry.permission_type, "UNKNOWN"),
        "resource_type": _RESOURCES.get(entry.resource_type, "UNKNOWN"),
        "resource_name": entry.resource_name,
        "pattern_type": _PATTERNS.get(entry.pattern_type, "UNKNOWN"),
    }


def _quota_listing(entities: Mapping[QuotaEntity, Mapping[str, float]]) -> RowListing[_Quota]:
    quotas = [
        _Quota(sorted(entity, key=lambda part: part[0], reverse=True), values) for entity, values in entities.items()
    ]
    return RowListing(sorted(quotas, key=lambda quota: quota.text), lambda quota: quota.text)
