"""The circumstances of a request, which its handler gets beside the decoded message.

A context carries no socket and nothing to write to: responses are return values.
"""

from collections.abc import Callable
from dataclasses import dataclass

from broker.api.pipeline.audit import AuditTrail
from broker.api.pipeline.authorization import Authorizer
from broker.api.pipeline.permission import Requirement
from broker.net.request import ConnectionInfo, Request


@dataclass(slots=True, eq=False)
class RequestContext:
    """The circumstances of one request.

    `connection` is the live record of the connection: ApiVersions writes the client's software name and version into
    it, quotas the mute time. `request` is the frame itself, needed only for the methods here. Without `authorizer`
    everything is allowed; `audit` observes what the authorizer decides.
    """

    api_version: int
    client_id: str
    connection: ConnectionInfo
    request: Request
    authorizer: Authorizer | None = None
    audit: AuditTrail | None = None

    def allows(self, requirement: Requirement, resource_name: str) -> bool:
        """Whether the principal has what `requirement` says on the resource of that name (KIP-11)."""
        authorizer = self.authorizer
        if authorizer is None:
            return True
        client = self.connection
        is_allowed = _is_allowed(authorizer, client.principal, client.peer_host, requirement, resource_name)
        if self.audit is not None:
            api_key = self.request.header.api_key
            self.audit.decided(self.connection, api_key, requirement, resource_name, is_allowed=is_allowed)
        return is_allowed

    def later_check(self, requirement: Requirement) -> Callable[[str], bool] | None:
        """Return a check of names that may outlive the request and is not audited; None without an authorizer."""
        authorizer, client = self.authorizer, self.connection
        if authorizer is None:
            return None
        principal, host = client.principal, client.peer_host
        return lambda name: _is_allowed(authorizer, principal, host, requirement, name)

    def allows_some(self, requirement: Requirement) -> bool:
        """Whether the principal has what `requirement` says on at least one resource (KIP-679)."""
        authorizer = self.authorizer
        if authorizer is None:
            return True
        client = self.connection
        is_allowed = all(
            any(authorizer.is_allowed_on_some(client.principal, client.peer_host, permission) for permission in clause)
            for clause in requirement.clauses
        )
        if self.audit is not None:
            self.audit.decided(client, self.request.header.api_key, requirement, None, is_allowed=is_allowed)
        return is_allowed

    @property
    def received_ms(self) -> int:
        """The wall clock when the frame was complete, in milliseconds since 1970."""
        return self.request.received_ms

    @property
    def listener(self) -> str:
        """The name of the listener that the request arrived on; a response names endpoints of that listener."""
        return self.connection.listener

    @property
    def principal(self) -> str:
        """The authenticated principal as `Type:name`; `User:ANONYMOUS` on a listener without authentication."""
        return self.connection.principal

    @property
    def peer_host(self) -> str:
        """The peer's address as text, without port."""
        return self.connection.peer_host

    def effects_applied(self) -> None:
        """Report that the request has had all its effects and awaits confirmation; see `Request.effects_applied`."""
        self.request.effects_applied()

    def when_input_ended(self, callback: Callable[[], None]) -> None:
        """Call `callback` once if the peer sends nothing more; see `Request.when_input_ended`."""
        self.request.when_input_ended(callback)


def _is_allowed(
    authorizer: Authorizer, principal: str, host: str, requirement: Requirement, resource_name: str
) -> bool:
    for clause in requirement.clauses:  # Loops: two generators cost twice as much, for each topic of a request.
        for permission in clause:
            if authorizer.is_allowed(principal, host, permission, resource_name):
                break
        else:
            return False
    return True
