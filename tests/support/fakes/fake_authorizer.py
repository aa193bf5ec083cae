"""An authorizer that knows exactly the permissions a test grants."""

from collections.abc import Iterable

from broker.api.pipeline.permission import AclOperation, AclResourceType, Permission

Grant = tuple[str, AclOperation, AclResourceType, str]
"""Principal, operation, resource type, resource name."""


class GrantedPermissions:
    """Allows what `granted` lists and nothing else: no operation implies another, and hosts do not matter.

    `asked` lists the decisions in order. A test that changes `granted` raises `generation`.
    """

    def __init__(self, granted: Iterable[Grant] = ()) -> None:
        self.granted = set(granted)
        self.generation = 0
        self.asked: list[Grant] = []

    def is_allowed(self, principal: str, host: str, permission: Permission, resource_name: str) -> bool:
        grant = (principal, permission.operation, permission.resource_type, resource_name)
        self.asked.append(grant)
        return grant in self.granted

    def is_allowed_on_some(self, principal: str, host: str, permission: Permission) -> bool:
        return any(
            (principal, permission.operation, permission.resource_type) == (who, operation, resource_type)
            for who, operation, resource_type, _ in self.granted
        )
