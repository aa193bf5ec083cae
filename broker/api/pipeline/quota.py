"""Request quotas: the time that a connection is muted after a request (KIP-124, KIP-219).

No quota on requests is enforced yet. Mutation quotas (KIP-599) are decided by the controller, with the command.
"""

from collections.abc import Awaitable
from typing import Protocol

from broker.net.request import Dispatch, EncodedResponse, Request


class RequestQuota(Protocol):
    """Accounts for the requests of clients."""

    def throttle_ms(self, principal: str, client_id: str | None) -> float:
        """Record one request. Return the time in ms that its connection is muted for; 0 within the quota."""
        ...


class Unlimited:
    """The quota of a node without quotas."""

    def throttle_ms(self, principal: str, client_id: str | None) -> float:
        return 0.0


class QuotaStage:
    """Mutes connections of clients that exceed their quota.

    The response leaves at once, and the connection's next request waits.
    """

    __slots__ = ("_next_stage", "_quota")

    def __init__(self, next_stage: Dispatch, quota: RequestQuota) -> None:
        self._next_stage = next_stage
        self._quota = quota

    def __call__(self, request: Request) -> EncodedResponse | Awaitable[EncodedResponse]:
        """Handle one request; see `broker.net.request.Dispatch`."""
        response = self._next_stage(request)
        client = request.connection
        client.mute_ms = max(client.mute_ms, self._quota.throttle_ms(client.principal, request.header.client_id))
        return response
