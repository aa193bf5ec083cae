"""One row of the table of APIs (`routes.py`): a key, the versions that are served, and who answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.api.context import RequestContext
from protocol.api_keys import API_BY_KEY, ApiKey, request_class, response_class
from protocol.compiler import decoder
from protocol.messages import Message

Handler = Callable[[Any, RequestContext], Any]
"""Takes the decoded request and its context; returns the response, None (no answer) or an awaitable of either.

Each handler is typed with its own messages; here they meet as one type, and the table is what pairs them up.
"""


@dataclass(frozen=True, slots=True)
class Route:
    """One served API. `unsupported_version` makes the version-0 answer to unknown versions (ApiVersions alone)."""

    key: ApiKey
    min_version: int
    max_version: int
    handler: Handler
    request_class: type[Message]
    response_class: type[Message]
    unsupported_version: Callable[[], Message] | None = None

    def decode(self, body: memoryview, version: int) -> Message:
        """The request in `body`. Raises DecodeError."""
        message, _end = decoder(self.request_class, version)(body, 0)
        return message


def route(
    key: ApiKey,
    handler: Handler,
    *,
    max_version: int | None = None,
    unsupported_version: Callable[[], Message] | None = None,
) -> Route:
    """A row with all stable versions of the schemas, or those up to `max_version`."""
    api = API_BY_KEY[key]
    highest = api.max_version - api.unstable if max_version is None else max_version
    return Route(key, api.min_version, highest, handler, request_class(key), response_class(key), unsupported_version)
