"""The console's HTTP side: paths, parameters, checks of origin and rights, errors as JSON."""

import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

from broker.console.assets import SECURITY_HEADERS, Assets
from broker.console.events import EventHub
from broker.console.origin import ACTION_HEADER, is_foreign_site, is_own_host, is_same_origin
from broker.console.request import ConsoleError, ConsoleRequest, Json, View, bad_request
from broker.http.messages import HttpRequest, HttpResponse
from broker.logs import EventLog
from broker.net.peer import PeerError
from broker.net.request import ANONYMOUS
from protocol.errors import KafkaError

API: Final = "/console/api/"
ASSETS: Final = "/console/"
EVENTS: Final = "events"
REQUESTS_MAX: Final = 32
"""Requests that are answered at the same time."""

_log: Final = EventLog("broker.console")


class ConsoleService:
    """Answers `/`, `/console/…` and the actions. `views` and `actions` are by name."""

    def __init__(
        self,
        views: Mapping[str, View],
        actions: Mapping[str, View],
        hub: EventHub,
        *,
        has_credentials: bool,
        host_names: Callable[[], Collection[str]],
        actions_enabled: Callable[[], bool],
    ) -> None:
        self._views = views
        self._actions = actions
        self._hub = hub
        self._assets = Assets()
        self._has_credentials = has_credentials
        self._host_names = host_names
        self._actions_enabled = actions_enabled
        self._requests = 0

    async def get(self, request: HttpRequest) -> HttpResponse:
        """Answer a GET."""
        if request.path == "/":
            return self._assets.answer("index.html", request)
        if not request.path.startswith(API):
            return self._assets.answer(request.path.removeprefix(ASSETS), request)
        return await self._answer(self._view, request)

    async def post(self, request: HttpRequest) -> HttpResponse:
        """Answer an action."""
        return await self._answer(self._act, request)

    def close(self) -> None:
        """Tell the browsers that the node stops."""
        self._hub.close()

    async def _answer(
        self, make: Callable[[HttpRequest], Awaitable[HttpResponse]], request: HttpRequest
    ) -> HttpResponse:
        """Return the answer of `make`, or its refusal as a sentence."""
        if self._requests >= REQUESTS_MAX:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "The console answers too many requests; try again.")
        self._requests += 1
        try:
            self._check_site(request)
            return await make(request)
        except ConsoleError as error:
            return _refusal(error.status, error.sentence)
        except PeerError as error:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"Another node does not answer: {error}.")
        except KafkaError as error:  # an authorizer that knows no metadata yet
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"The node does not answer: {error.message}.")
        finally:
            self._requests -= 1

    async def _view(self, request: HttpRequest) -> HttpResponse:
        name, parsed = request.path.removeprefix(API), _parsed(request)
        if name == EVENTS:
            return HttpResponse(200, b"", "text/event-stream", SECURITY_HEADERS, self._hub.events(parsed))
        view = self._views.get(name)
        if view is None:
            raise ConsoleError(HTTPStatus.NOT_FOUND, "The console has no such path.")
        answer = await view(parsed)
        if name == "session":
            answer["actions"] = self._actions_enabled()
        return _json(HTTPStatus.OK, answer)

    async def _act(self, request: HttpRequest) -> HttpResponse:
        self._check_action(request)
        action = self._actions.get(request.path.removeprefix(API + "actions/"))
        if action is None:
            raise ConsoleError(HTTPStatus.NOT_FOUND, "The console has no such action.")
        asked = _parsed(request, _body(request))
        answer = await action(asked)
        _log.info("An action of the console succeeded", action=request.path, principal=asked.principal)
        return _json(HTTPStatus.OK, {"ok": True, **answer})

    def _check_site(self, request: HttpRequest) -> None:
        """Raise ConsoleError for a request of another site, or under a foreign name of this host.

        With credentials, names need no check: a browser does not send them to a name that it has not asked about.
        """
        if is_foreign_site(request.headers.get("sec-fetch-site")):
            raise ConsoleError(HTTPStatus.FORBIDDEN, "Other sites may not ask the console.")
        if not self._has_credentials and not is_own_host(request.headers.get("host", ""), self._host_names()):
            raise ConsoleError(
                HTTPStatus.MISDIRECTED_REQUEST,
                "The console answers to this machine's names and addresses only; set advertised.listeners to the name "
                "that you use, or ottla.http.credentials.location.",
            )

    def _check_action(self, request: HttpRequest) -> None:
        if not self._actions_enabled():
            raise ConsoleError(
                HTTPStatus.FORBIDDEN, "The console is read-only; ottla.console.actions.enable=true allows actions."
            )
        is_own = is_same_origin(request.headers.get("origin"), request.headers.get("host", ""))
        if ACTION_HEADER not in request.headers or not is_own:
            raise ConsoleError(HTTPStatus.FORBIDDEN, "Actions are accepted from the console's own page only.")


def _parsed(request: HttpRequest, body: Json | None = None) -> ConsoleRequest:
    try:
        pairs = parse_qsl(request.query, keep_blank_values=True, max_num_fields=50, errors="strict")
    except ValueError:
        raise bad_request("The parameters of the request do not parse.") from None
    principal = ANONYMOUS if request.user is None else f"User:{request.user}"
    return ConsoleRequest(dict(pairs), principal, request.peer_host, {} if body is None else body)


def _body(request: HttpRequest) -> Json:
    try:
        value = json.loads(request.body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise bad_request("The body must be a JSON object.")
    return value


def _json(status: int, value: Json) -> HttpResponse:
    body = json.dumps(value, separators=(",", ":")).encode()
    return HttpResponse(status, body, "application/json", SECURITY_HEADERS)


def _refusal(status: HTTPStatus, sentence: str) -> HttpResponse:
    return _json(status, {"error": sentence})
