"""Requests, responses and routes, as handlers see them."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol, TypeAlias

from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request of `path`, without query; `query` is the undecoded text after the question mark.

    `headers` have names in lower case. `user` is the name of the credentials, None for a token or without credentials.
    """

    path: str
    query: str = ""
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    user: str | None = None
    peer_host: str = ""


class EventSource(Protocol):
    """Server-sent events for one response."""

    def open(self, send: Callable[[bytes], None], end: Callable[[], None]) -> None:
        """Begin to call `send` with encoded events. `end` completes the response and closes the connection."""
        ...

    def close(self) -> None:
        """End, because the client has gone."""
        ...


@lazy_dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response, or the head of a stream of `events`; the server adds lengths and connection handling."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Sequence[tuple[str, str]] = ()
    events: EventSource | None = None


Handler: TypeAlias = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]
Routes: TypeAlias = Mapping[str, Handler]
"""Handlers by exact path, or by the path's first segment: `/console/*`. Keys of POST handlers begin with `POST `."""


def find_handler(routes: Routes, method: str, path: str) -> Handler | None:
    """Return the handler of a path, None if the path does not exist for the method."""
    prefix = "POST " if method == "POST" else ""
    return routes.get(prefix + path) or routes.get(f"{prefix}/{path.split('/', 2)[1]}/*")


def json_response(status: int, value: object) -> HttpResponse:
    """Return `value` as JSON."""
    return HttpResponse(status, json.dumps(value).encode() + b"\n", "application/json")
