"""The last stage of a request: look up the route, decode, call the handler, encode the response.

Every request passes here, so version checks, error responses and request counts apply to all routes, and no handler
repeats them. This file knows neither sockets nor the meaning of any API.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

from broker.api.pipeline.audit import AuditTrail
from broker.api.pipeline.authorization import Authorizer
from broker.api.pipeline.permission import Requirement, Unrestricted
from broker.api.pipeline.quota import RequestQuota
from broker.api.pipeline.tracing import RequestTracing
from broker.api.serving.context import RequestContext
from broker.api.serving.errors import error_response
from broker.api.serving.measured_steps import measured
from broker.api.serving.route import Route
from broker.clock import Clock
from broker.direct_future import when_done
from broker.net.request import CloseConnection, EncodedResponse, Request
from broker.net.request_trace import Stage
from broker.runtime.loop.pending_result import FollowingFuture, PendingResult
from protocol.api_keys import ApiKey
from protocol.compiler import decoder
from protocol.errors import ErrorCode, KafkaError
from protocol.headers import encode_response
from protocol.messages import Message

log = logging.getLogger(__name__)

_FAILURE = "request failed with an unexpected error api=%s"

_Take: TypeAlias = Callable[[asyncio.Future[Any]], Message | None]
"""Returns the response of a completed future, or raises its error."""


class RequestObserver(Protocol):
    """Counts requests; see `broker.metrics`."""

    def on_request(self, api_key: int, api_version: int, elapsed_ms: float) -> None:
        """Count a request whose response was ready (or not needed) `elapsed_ms` after its frame was complete."""
        ...

    def on_error(self, api_key: int, code: int) -> None:
        """Count a request that failed as a whole."""
        ...


class Dispatcher:
    """Answers requests from a table of routes. Handlers that finish at once or return a future cost no task.

    `quota` is None where no client quota applies, `authorizer` is None where everything is allowed, `audit`
    without an audit log, `tracing` where no request is ever traced.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        clock: Clock,
        observer: RequestObserver,
        quota: RequestQuota | None = None,
        authorizer: Authorizer | None = None,
        audit: AuditTrail | None = None,
        tracing: RequestTracing | None = None,
    ) -> None:
        self._routes = {int(route.key): route for route in routes}
        self._clock = clock
        self._observer = observer
        self._quota = quota
        self._authorizer = authorizer
        self.audit = audit
        self._tracing = tracing

    @property
    def authorizer(self) -> Authorizer | None:
        """The policy that handlers ask; None allows everything."""
        return self._authorizer

    @property
    def permissions(self) -> Mapping[int, Requirement | Unrestricted]:
        """The required permission of each route, by API key."""
        return {key: route.permission for key, route in self._routes.items()}

    def __call__(self, request: Request) -> EncodedResponse | Awaitable[EncodedResponse]:
        """See `broker.net.request.Dispatch`. Raises CloseConnection and DecodeError, which end the connection."""
        header = request.header
        version = header.api_version
        route = self._routes.get(header.api_key)
        if route is None:
            raise CloseConnection(f"sent API key {header.api_key}, which this listener does not serve")
        if version not in route.versions:
            return self._unsupported(route, request)
        quota = self._quota
        is_measured = quota is not None and quota.is_enabled
        if is_measured:
            request.begin_step(self._clock.monotonic_ms())
        tracing = self._tracing
        if tracing is not None and tracing.is_enabled:
            tracing.begin(request)
        message, _end = decoder(route.request_class, version)(request.body, 0)  # Route.decode, without its call
        context = RequestContext(
            version, header.client_id or "", request.connection, request, self._authorizer, self.audit
        )
        try:
            response = route.handler(message, context)
        except CloseConnection:
            raise
        except Exception as error:  # noqa: BLE001  logged and answered
            response = self._failure(route, message, error)
        if response is None or isinstance(response, route.response_class):
            return self._encode(route, request, response)
        if tracing is not None and request.trace is not None:
            tracing.on_pending(request, request.trace)
        if not is_measured:
            return self._encode_when_ready(route, request, message, response)
        now_ms = self._clock.monotonic_ms()
        request.end_step(now_ms)
        if quota is not None:
            quota.on_waiting(request, now_ms)
        return measured(self._encode_later(route, request, message, response), request, self._clock)

    def refuse(self, request: Request, error: KafkaError) -> EncodedResponse:
        """Answer a served request with an error instead of handling it. Raises CloseConnection and DecodeError."""
        route, version = self._routes[request.header.api_key], request.header.api_version
        if version not in route.versions:
            return self._unsupported(route, request)
        return self._encode(route, request, self._error_response(route, route.decode(request.body, version), error))

    def _encode(self, route: Route, request: Request, response: Message | None) -> EncodedResponse:
        header, quota = request.header, self._quota
        now_ms = self._clock.monotonic_ms()
        self._observer.on_request(header.api_key, header.api_version, now_ms - request.arrived_ms)
        is_measured = quota is not None and quota.is_enabled
        if quota is not None and is_measured:
            quota.on_response(request, response, now_ms)
        if response is None:
            if request.trace is not None:
                request.trace.finish(request)
            return None
        encoded = encode_response(header.api_key, header.api_version, header.correlation_id, response)
        if quota is not None and is_measured:
            quota.on_encoded(request, self._clock.monotonic_ms())
        if request.trace is not None:
            request.trace.enter(Stage.SEND)
        return encoded

    async def _encode_later(
        self, route: Route, request: Request, message: Message, pending: Awaitable[Message | None]
    ) -> EncodedResponse:
        try:
            response = await pending
        except CloseConnection:
            raise
        except Exception as error:  # noqa: BLE001  logged and answered
            response = self._failure(route, message, error)
        if request.trace is not None:
            request.trace.enter(Stage.LOCAL)
        return self._encode(route, request, response)

    def _encode_when_ready(
        self, route: Route, request: Request, message: Message, response: Any
    ) -> Awaitable[EncodedResponse]:
        if isinstance(response, PendingResult):
            return self._encode_when_done(route, request, message, response.future, response.take)
        if isinstance(response, asyncio.Future):
            return self._encode_when_done(route, request, message, response, _result)
        return self._encode_later(route, request, message, response)

    def _encode_when_done(
        self, route: Route, request: Request, message: Message, pending: asyncio.Future[Any], take: _Take
    ) -> "FollowingFuture[EncodedResponse]":
        """Return the future of the encoded response, without the task that `_encode_later` takes."""
        encoded: FollowingFuture[EncodedResponse] = FollowingFuture(pending)
        when_done(pending, partial(self._on_done, route, request, message, take, encoded))
        return encoded

    def _on_done(
        self,
        route: Route,
        request: Request,
        message: Message,
        take: _Take,
        encoded: "FollowingFuture[EncodedResponse]",
        pending: asyncio.Future[Any],
    ) -> None:
        if encoded.done():  # the connection is gone
            return
        if pending.cancelled():
            encoded.cancel()
            return
        try:
            response = self._taken(route, message, take, pending)
            if request.trace is not None:
                request.trace.enter(Stage.LOCAL)
            encoded.set_result(self._encode(route, request, response))
        except Exception as error:  # noqa: BLE001  any of them ends the connection
            encoded.set_exception(error)

    def _taken(self, route: Route, message: Message, take: _Take, pending: asyncio.Future[Any]) -> Message | None:
        """Return the response. Raise CloseConnection."""
        try:
            return take(pending)
        except CloseConnection:
            raise
        except Exception as error:  # noqa: BLE001  logged and answered
            return self._failure(route, message, error)

    def _failure(self, route: Route, message: Message, error: Exception) -> Message:
        """Return the response to an error of the handler; log one that is no KafkaError."""
        if isinstance(error, KafkaError):
            return self._error_response(route, message, error)
        log.error(_FAILURE, route.key.name, exc_info=error)
        return self._error_response(route, message, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _error_response(self, route: Route, message: Message, error: KafkaError) -> Message:
        """Return the response that reports `error`. A failure of the broker is reported by its code alone."""
        self._observer.on_error(route.key, error.code)
        return error_response(route.response_class, message, error.code, error.message)

    def _unsupported(self, route: Route, request: Request) -> EncodedResponse:
        """Answer ApiVersions of any version in version 0, with the served range (KIP-511); refuse all other APIs.

        Raises CloseConnection.
        """
        header = request.header
        if route.key is not ApiKey.API_VERSIONS or route.unsupported_version is None:
            served = f"{route.min_version} to {route.max_version}"
            raise CloseConnection(
                f"sent {route.key.name} version {header.api_version}, this listener serves versions {served}"
            )
        return encode_response(header.api_key, 0, header.correlation_id, route.unsupported_version())


def _result(pending: asyncio.Future[Any]) -> Message | None:
    response: Message | None = pending.result()
    return response
