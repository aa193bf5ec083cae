"""From a frame to its answer: looks up the route, decodes, calls the handler, encodes.

This is the one place through which every request passes, so version checks, the translation of errors and the counting
of requests wrap all routes here, and no handler repeats them. It knows neither sockets nor what any API means.
"""

import logging
from collections.abc import Awaitable, Iterable
from typing import Protocol

from broker.api.serving.context import RequestContext
from broker.api.serving.errors import error_response
from broker.api.serving.route import Route
from broker.clock import Clock
from broker.net.request import CloseConnection, EncodedResponse, Request
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.headers import encode_response
from protocol.messages import Message

log = logging.getLogger(__name__)

_FAULT = "request failed by a fault of the broker api=%s"


class RequestObserver(Protocol):
    """Counts requests; see `broker.metrics`."""

    def on_request(self, api_key: int, api_version: int, elapsed_ms: float) -> None:
        """A request was answered (or needed no answer) so many milliseconds after its frame was complete."""
        ...

    def on_error(self, api_key: int, code: int) -> None:
        """A request was refused as a whole."""
        ...


class Dispatcher:
    """Answers requests from a table of routes. Handlers that finish at once cost no task."""

    def __init__(self, routes: Iterable[Route], clock: Clock, observer: RequestObserver) -> None:
        self._routes = {int(route.key): route for route in routes}
        self._clock = clock
        self._observer = observer

    def __call__(self, request: Request) -> EncodedResponse | Awaitable[EncodedResponse]:
        """See `broker.net.request.Dispatch`. Raises CloseConnection and DecodeError, which end the connection."""
        header = request.header
        version = header.api_version
        route = self._routes.get(header.api_key)
        if route is None:
            raise CloseConnection(f"asks for API key {header.api_key}, which is not served here")
        if version not in route.versions:
            return self._unsupported(route, request)
        message = route.decode(request.body, version)
        context = RequestContext(version, header.client_id or "", request.connection, request)
        try:
            response = route.handler(message, context)
        except KafkaError as error:
            response = self._refusal(route, message, error)
        except CloseConnection:
            raise
        except Exception:
            log.exception(_FAULT, route.key.name)
            response = self._refusal(route, message, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        if response is None or isinstance(response, route.response_class):
            return self._answer(route, request, response)
        return self._answer_later(route, request, message, response)

    def _answer(self, route: Route, request: Request, response: Message | None) -> EncodedResponse:
        header = request.header
        self._observer.on_request(header.api_key, header.api_version, self._clock.monotonic_ms() - request.arrived_ms)
        if response is None:
            return None
        return encode_response(header.api_key, header.api_version, header.correlation_id, response)

    async def _answer_later(
        self, route: Route, request: Request, message: Message, pending: Awaitable[Message | None]
    ) -> EncodedResponse:
        try:
            response = await pending
        except KafkaError as error:
            response = self._refusal(route, message, error)
        except CloseConnection:
            raise
        except Exception:
            log.exception(_FAULT, route.key.name)
            response = self._refusal(route, message, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        return self._answer(route, request, response)

    def _refusal(self, route: Route, message: Message, error: KafkaError) -> Message:
        """A fault of ours is told by its code alone; the trace is in our log."""
        self._observer.on_error(route.key, error.code)
        return error_response(route.response_class, message, error.code, error.message)

    def _unsupported(self, route: Route, request: Request) -> EncodedResponse:
        """ApiVersions alone is answered in any version: in version 0, with the range to try again (KIP-511)."""
        header = request.header
        if route.key is not ApiKey.API_VERSIONS or route.unsupported_version is None:
            served = f"{route.min_version} to {route.max_version}"
            raise CloseConnection(f"asks for {route.key.name} version {header.api_version}, served are {served}")
        return encode_response(header.api_key, 0, header.correlation_id, route.unsupported_version())
