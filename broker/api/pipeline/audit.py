"""The observer of authorization decisions and of failed logins, as stages and handlers see it."""

from typing import Protocol

from broker.api.pipeline.permission import Requirement
from broker.net.request import ConnectionInfo


class AuditTrail(Protocol):
    """Takes decisions on the event loop; must not block."""

    def decided(
        self,
        client: ConnectionInfo,
        api_key: int,
        requirement: Requirement,
        resource_name: str | None,
        *,
        is_allowed: bool,
    ) -> None:
        """Note a decision. `resource_name` is None for a question about any resource of the type."""
        ...

    def login_failed(self, client: ConnectionInfo, mechanism: str, user: str | None, reason: str) -> None:
        """Note a failed login. `user` is the name that the client claimed, None if it claimed none."""
        ...
