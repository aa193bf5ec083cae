"""Checks of rights that several handlers share (KIP-11)."""

from collections.abc import Iterable

from broker.api.pipeline.permission import DESCRIBE_TOPIC, Requirement
from broker.api.serving.context import RequestContext
from protocol.errors import ErrorCode, KafkaError

TOPICS_HIDDEN = "The described group uses topics that the client is not authorized to describe."


def require(context: RequestContext, requirement: Requirement, name: str, code: ErrorCode) -> None:
    """Raise KafkaError with `code` if the principal lacks the right to the resource of that name."""
    if not context.allows(requirement, name):
        raise KafkaError(code)


def require_group(context: RequestContext, requirement: Requirement, group_id: str) -> None:
    """Raise KafkaError GROUP_AUTHORIZATION_FAILED without the right to the group."""
    require(context, requirement, group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)


def require_transactional_id(context: RequestContext, requirement: Requirement, transactional_id: str) -> None:
    """Raise KafkaError TRANSACTIONAL_ID_AUTHORIZATION_FAILED without the right to the transactional id."""
    require(context, requirement, transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def denied_names(context: RequestContext, requirement: Requirement, names: Iterable[str]) -> frozenset[str]:
    """Return the names to which the principal lacks the right; each is decided once."""
    if context.authorizer is None:
        return frozenset()
    return frozenset(name for name in set(names) if not context.allows(requirement, name))


def require_described(context: RequestContext, names: Iterable[str]) -> None:
    """Raise KafkaError TOPIC_AUTHORIZATION_FAILED if the principal may not describe one of the topics."""
    if denied_names(context, DESCRIBE_TOPIC, names):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
