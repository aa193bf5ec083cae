"""Requests, responses and routes, as the functions behind the routes see them."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A GET (or HEAD) of `path`, without query; `query` is what followed the question mark, undecoded."""

    path: str
    query: str = ""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A whole response; lengths and connection handling are the server's business."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"


Handler: TypeAlias = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]
Routes: TypeAlias = Mapping[str, Handler]
"""Exact path to handler."""


def json_response(status: int, value: object) -> HttpResponse:
    """`value` as JSON."""
    return HttpResponse(status, json.dumps(value).encode() + b"\n", "application/json")
