"""The authorization of requests: a policy, and the stage that applies it to requirements on the cluster (KIP-11).

Routes state what they need; handlers and stage ask the same `Authorizer`. Without `authorizer.class.name` it is None,
which allows everything and refuses the Acl APIs with SECURITY_DISABLED, as Kafka does.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, runtime_checkable

from broker.api.pipeline.audit import AuditTrail
from broker.api.pipeline.permission import CLUSTER_RESOURCE_NAME, Permission, Requirement, Unrestricted
from broker.net.request import ConnectionInfo, Dispatch, EncodedResponse, Request
from protocol.errors import ErrorCode, KafkaError

Refuse = Callable[[Request, KafkaError], EncodedResponse]
"""Encodes the response to a request that is refused as a whole."""


@runtime_checkable
class Authorizer(Protocol):
    """Decides what principals may do. Called on the loop for every request, so it must not block.

    A method may raise KafkaError to refuse a request with another error than that of an unauthorized resource. An
    optional attribute `generation` is a number that changes when decisions may change (`generation_of`).
    """

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


def generation_of(authorizer: Authorizer) -> int:
    """Return a number that changes when decisions may change; 0 if the authorizer does not tell.

    Partitions at rest in a fetch session are judged anew when it changes, otherwise when they have news.
    """
    generation: int = getattr(authorizer, "generation", 0)
    return generation


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

    __slots__ = ("_audit", "_authorizer", "_next_stage", "_on_cluster", "_refuse")

    def __init__(
        self,
        next_stage: Dispatch,
        authorizer: Authorizer,
        requirements: Mapping[int, Requirement | Unrestricted],
        refuse: Refuse,
        audit: AuditTrail | None = None,
    ) -> None:
        self._audit = audit
        self._next_stage = next_stage
        self._authorizer = authorizer
        self._on_cluster = {
            key: requirement
            for key, requirement in requirements.items()
            if isinstance(requirement, Requirement) and requirement.cluster_clauses
        }
        self._refuse = refuse

    def __call__(self, request: Request) -> EncodedResponse | Awaitable[EncodedResponse]:
        """Handle one request; see `broker.net.request.Dispatch`."""
        requirement = self._on_cluster.get(request.header.api_key)
        if requirement is None:
            return self._next_stage(request)
        try:
            is_allowed = is_allowed_on_cluster(self._authorizer, request.connection, requirement)
        except KafkaError as error:
            return self._refuse(request, error)
        if self._audit is not None:
            self._audit.decided(
                request.connection,
                request.header.api_key,
                Requirement(requirement.cluster_clauses),
                CLUSTER_RESOURCE_NAME,
                is_allowed=is_allowed,
            )
        if is_allowed:
            return self._next_stage(request)
        return self._refuse(request, KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
