"""The quota of requests that create or delete partitions (KIP-599)."""

from broker.api.serving.context import RequestContext
from broker.metadata.controller.controller import Controller
from broker.metadata.controller.mutation_quota import MutationQuota


def mutation_quota(controller: Controller, context: RequestContext, *, strict_from: int, now_ms: int) -> MutationQuota:
    """Return the caller's quota; versions before `strict_from` cannot be refused and are throttled instead."""
    strict = context.api_version >= strict_from
    return controller.mutation_quota(context.principal, context.client_id, strict=strict, now_ms=now_ms)


def throttle(context: RequestContext, throttle_ms: int) -> None:
    """Mute the connection for the throttle time of its response (KIP-219)."""
    if throttle_ms > 0:
        context.connection.mute_ms = max(context.connection.mute_ms, throttle_ms)
