"""The wrapping of a route whose requests the active controller answers, wherever that is (KIP-590)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from inspect import isawaitable
from typing import Any, Protocol, TypeVar

from broker.api.serving.context import RequestContext
from broker.api.serving.errors import reports
from broker.api.serving.mutation_quota import hold_back
from broker.api.serving.route import Route
from broker.net.request import ConnectionInfo
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.headers import RequestHeader
from protocol.messages import Message

M = TypeVar("M", bound=Message)

# These are the quorum's own; who does not lead it says so in its words.
_OF_THE_QUORUM = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER})


class Forwarding(Protocol):
    """Gets a request answered by the active controller; see `broker.runtime.controller.forwarding.Forwarder`."""

    def controller_versions(self) -> Mapping[int, tuple[int, int]] | None: ...

    async def forward(
        self,
        request: Message,
        header: RequestHeader,
        client: ConnectionInfo,
        answer: type[M],
        here: Callable[[], Awaitable[M]],
    ) -> M: ...


def forwarded(row: Route, forwarding: Forwarding) -> Route:
    """The row, answered by its handler where this node is the active controller, and elsewhere otherwise."""
    return replace(row, handler=ForwardedHandler(row, forwarding), is_forwarded=True)


class ForwardedHandler:
    """A handler that stands for that of the active controller.

    The request is encoded anew: a handler in front of this one may have answered a part of it itself.
    """

    def __init__(self, row: Route, forwarding: Forwarding) -> None:
        self._row = row
        self._forwarding = forwarding

    async def __call__(self, request: Any, context: RequestContext) -> Any:
        async def here() -> Message:
            response = self._row.handler(request, context)
            if isawaitable(response):
                response = await response
            if met_no_controller(self._row.key, response):
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            assert isinstance(response, self._row.response_class)
            return response

        response = await self._forwarding.forward(
            request, context.request.header, context.connection, self._row.response_class, here
        )
        hold_back(context, getattr(response, "throttle_time_ms", 0))
        return response


def met_no_controller(key: ApiKey, response: Message) -> bool:
    """Whether a response says, in any place, that another node had to be asked."""
    return reports(response, ErrorCode.NOT_CONTROLLER) or (
        key in _OF_THE_QUORUM and reports(response, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    )
