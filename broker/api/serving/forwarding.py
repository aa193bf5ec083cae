"""Forwarding to the active controller: the table of a broker's listener gets handlers that forward (KIP-590)."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from inspect import isawaitable
from typing import Any, Protocol, TypeVar

from broker.api.serving.context import RequestContext
from broker.api.serving.errors import reports
from broker.api.serving.mutation_quota import throttle
from broker.api.serving.route import Handler, Route
from broker.net.request import ConnectionInfo
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.headers import RequestHeader
from protocol.messages import Message

M = TypeVar("M", bound=Message)

BrokerStep = Callable[[Handler], Handler]
"""Wraps a forwarding handler in the part of an API that the receiving broker does itself."""

_QUORUM_APIS = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER})
"""APIs whose responses report NOT_LEADER_OR_FOLLOWER where others report NOT_CONTROLLER."""


class RequestForwarder(Protocol):
    """Sends requests to the active controller; see `broker.runtime.controller.forwarding.Forwarder`."""

    def controller_versions(self) -> Mapping[int, tuple[int, int]] | None: ...

    async def forward(
        self,
        request: Message,
        header: RequestHeader,
        client: ConnectionInfo,
        answer: type[M],
        here: Callable[[], Awaitable[M]],
    ) -> M: ...


def broker_rows(
    rows: Iterable[Route], forwarder: RequestForwarder, steps: Mapping[ApiKey, BrokerStep]
) -> tuple[Route, ...]:
    """Return the rows as a broker serves them: forwarded where `Route.forwarding` says so, with the broker's `steps`.

    A forwarded row keeps its handler for the time that this node is the active controller.
    """
    served = []
    for row in rows:
        if row.is_forwarded:
            handler: Handler = ForwardingHandler(row, forwarder)
            step = steps.get(row.key)
            row = replace(row, handler=handler if step is None else step(handler))
        served.append(row)
    return tuple(served)


class ForwardingHandler:
    """Answers a request through the active controller.

    The request is encoded again, because a broker step may have answered a part of it already.
    """

    def __init__(self, row: Route, forwarder: RequestForwarder) -> None:
        self._row = row
        self._forwarder = forwarder

    async def __call__(self, request: Any, context: RequestContext) -> Any:
        async def here() -> Message:
            response = self._row.handler(request, context)
            if isawaitable(response):
                response = await response
            if reports_not_controller(self._row.key, response):
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            assert isinstance(response, self._row.response_class)
            return response

        response = await self._forwarder.forward(
            request, context.request.header, context.connection, self._row.response_class, here
        )
        throttle(context, getattr(response, "throttle_time_ms", 0))
        return response


def reports_not_controller(key: ApiKey, response: Message) -> bool:
    """Whether a response says, for the request or a part of it, that another node is the active controller."""
    return reports(response, ErrorCode.NOT_CONTROLLER) or (
        key in _QUORUM_APIS and reports(response, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    )
