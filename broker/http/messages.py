"""Requests, responses and routes, as handlers see them."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A GET (or HEAD) of `path`, without query; `query` is the undecoded text after the question mark."""

    path: str
    query: str = ""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response; the server adds lengths and connection handling."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"


Handler: TypeAlias = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]
Routes: TypeAlias = Mapping[str, Handler]
"""Handlers by exact path."""


def json_response(status: int, value: object) -> HttpResponse:
    """Return `value` as JSON."""
    return HttpResponse(status, json.dumps(value).encode() + b"\n", "application/json")
