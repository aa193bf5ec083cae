"""The caller of a group, out of a request's context."""

from broker.api.serving.context import RequestContext
from broker.groups.caller import Caller, java_address


def caller(context: RequestContext) -> Caller:
    """Who asks, as groups remember their members."""
    return Caller(context.client_id, java_address(context.peer_host), context.api_version)
