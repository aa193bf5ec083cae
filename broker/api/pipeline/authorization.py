"""The authorization of requests: a policy, and the stage that applies it to requirements on the cluster (KIP-11).

No authorizer can be configured yet. Routes state what they need, handlers and stage ask the same `Authorizer`, and
nodes run with None, which allows everything and refuses the Acl APIs with SECURITY_DISABLED, as Kafka does.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from broker.api.pipeline.permission import CLUSTER_RESOURCE_NAME, Permission, Requirement, Unrestricted
from broker.net.request import ConnectionInfo, Dispatch, EncodedResponse, Request
from protocol.errors import ErrorCode, KafkaError

Refuse = Callable[[Request, KafkaError], EncodedResponse]
"""Encodes the response to a request that is refused as a whole."""


class Authorizer(Protocol):
    """Decides what principals may do."""

    def is_allowed(self, principal: str, host: str, permission: Permission, resource_name: str) -> bool:
        """Whether `principal`, connected from `host`, has `permission` on the resource of that name."""
        ...

    def is_allowed_on_some(self, principal: str, host: str, permission: Permission) -> bool:
        """Whether `principal`, connected from `host`, has `permission` on at least one resource (KIP-679)."""
        ...


class AllowAll:
    """The policy of a node without authorizer."""

    def is_allowed(self, principal: str, host: str, permission: Permission, resource_name: str) -> bool:
        return True

    def is_allowed_on_some(self, principal: str, host: str, permission: Permission) -> bool:
        return True


def require_authorizer(authorizer: Authorizer | None) -> Authorizer:
    """Return the authorizer. Raise KafkaError SECURITY_DISABLED without one: no policy would read stored entries."""
    if authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured")
    return authorizer


def is_allowed_on_cluster(
    authorizer: Authorizer | None, client: ConnectionInfo, requirement: Requirement | Unrestricted
) -> bool:
    """Whether the client's principal has what `requirement` says about the cluster alone."""
    if authorizer is None or isinstance(requirement, Unrestricted):
        return True
    return all(
        any(
            authorizer.is_allowed(client.principal, client.peer_host, permission, CLUSTER_RESOURCE_NAME)
            for permission in clause
        )
        for clause in requirement.cluster_clauses
    )


class AuthorizationStage:
    """Refuses requests whose principal lacks a permission on the cluster that the route requires."""

    __slots__ = ("_authorizer", "_next_stage", "_refuse", "_requirements")

    def __init__(
        self,
        next_stage: Dispatch,
        authorizer: Authorizer,
        requirements: Mapping[int, Requirement | Unrestricted],
        refuse: Refuse,
    ) -> None:
        self._next_stage = next_stage
        self._authorizer = authorizer
        self._requirements = requirements
        self._refuse = refuse

    def __call__(self, request: Request) -> EncodedResponse | Awaitable[EncodedResponse]:
        """Handle one request; see `broker.net.request.Dispatch`."""
        requirement = self._requirements.get(request.header.api_key)
        if requirement is None or is_allowed_on_cluster(self._authorizer, request.connection, requirement):
            return self._next_stage(request)
        return self._refuse(request, KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
