"""The caller of a group, taken from a request's context."""

from broker.api.serving.context import RequestContext
from broker.groups.caller import Caller, java_address


def caller(context: RequestContext) -> Caller:
    """Return the caller as groups remember their members."""
    return Caller(context.client_id, java_address(context.peer_host), context.api_version)
