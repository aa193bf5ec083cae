"""The quota of a request that creates or deletes partitions (KIP-599)."""

from broker.api.serving.context import RequestContext
from broker.metadata.controller.controller import Controller
from broker.metadata.controller.mutation_quota import MutationQuota


def mutation_quota(controller: Controller, context: RequestContext, *, strict_from: int, now_ms: int) -> MutationQuota:
    """The quota of who asks; versions before `strict_from` know no refusal and are slowed down instead."""
    strict = context.api_version >= strict_from
    return controller.mutation_quota(context.principal, context.client_id, strict=strict, now_ms=now_ms)


def hold_back(context: RequestContext, throttle_ms: int) -> None:
    """Let the client's next request wait for as long as its answer says (KIP-219)."""
    if throttle_ms > 0:
        context.connection.mute_ms = max(context.connection.mute_ms, throttle_ms)
