"""ACLs, client quotas and SCRAM users, without secrets."""

from typing import Final

from broker.api.pipeline.permission import (
    CLUSTER_RESOURCE_NAME,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS_OF_CLUSTER,
    AclOperation,
    AclResourceType,
)
from broker.console.cluster import ConsoleCluster
from broker.console.request import ConsoleRequest, Json, cut, paged
from broker.metadata.image.security_image import ScramMechanism

_PATTERNS: Final = {1: "ANY", 2: "MATCH", 3: "LITERAL", 4: "PREFIXED"}
_PERMISSIONS: Final = {1: "ANY", 2: "DENY", 3: "ALLOW"}


class SecurityViews:
    """The views `acls`, `quotas` and `users`."""

    def __init__(self, cluster: ConsoleCluster) -> None:
        self._cluster = cluster

    async def acls(self, request: ConsoleRequest) -> Json:
        """Return a page of the ACLs."""
        self._cluster.require(request, DESCRIBE_CLUSTER, CLUSTER_RESOURCE_NAME, "describe ACLs")
        page = request.page(("principal", "resource_name"))
        items = [
            {
                "principal": entry.principal,
                "host": entry.host,
                "operation": AclOperation(entry.operation).name,
                "permission": _PERMISSIONS.get(entry.permission_type, "UNKNOWN"),
                "resource_type": AclResourceType(entry.resource_type).name,
                "resource_name": entry.resource_name,
                "pattern_type": _PATTERNS.get(entry.pattern_type, "UNKNOWN"),
            }
            for entry in self._cluster.image.acls.entries.values()
            if page.search in entry.principal.lower() or page.search in entry.resource_name.lower()
        ]
        items.sort(key=lambda item: (item[page.sort], str(item)), reverse=page.is_descending)
        return paged(cut(items, page), page, len(items))

    async def quotas(self, request: ConsoleRequest) -> Json:
        """Return a page of the client quotas; a null name stands for the default entity."""
        self._cluster.require(request, DESCRIBE_CONFIGS_OF_CLUSTER, CLUSTER_RESOURCE_NAME, "describe client quotas")
        page = request.page(("entity",))
        items: list[Json] = []
        for entity, values in self._cluster.image.client_quotas.entities.items():
            parts = sorted(entity, key=lambda part: part[0], reverse=True)
            if page.search in " ".join(f"{kind} {name or 'default'}" for kind, name in parts).lower():
                named = [{"type": kind, "name": name} for kind, name in parts]
                items.append({"entity": named, "values": dict(sorted(values.items()))})
        items.sort(key=lambda item: str(item["entity"]), reverse=page.is_descending)
        return paged(cut(items, page), page, len(items))

    async def users(self, request: ConsoleRequest) -> Json:
        """Return a page of the users with SCRAM credentials: mechanisms and iterations."""
        self._cluster.require(request, DESCRIBE_CLUSTER, CLUSTER_RESOURCE_NAME, "describe users")
        page = request.page(("name",))
        users: dict[str, list[Json]] = {}
        for (mechanism, name), credential in self._cluster.image.scram.credentials.items():
            if page.search in name.lower():
                label = ScramMechanism(mechanism).name.replace("_", "-")
                users.setdefault(name, []).append({"mechanism": label, "iterations": credential.iterations})
        items = [
            {"name": name, "mechanisms": sorted(found, key=str)}
            for name, found in sorted(users.items(), key=lambda item: item[0], reverse=page.is_descending)
        ]
        return paged(cut(items, page), page, len(items))
