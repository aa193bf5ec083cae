"""One row of the table of APIs (`routes.py`): a key, the versions that are served, and who answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.api.serving.context import RequestContext
from protocol.api_keys import API_BY_KEY, FIRST_PRIVATE_KEY, ApiKey, request_class, response_class
from protocol.compiler import decoder
from protocol.messages import Message

Handler = Callable[[Any, RequestContext], Any]
"""Takes the decoded request and its context; returns the response, None (no answer) or an awaitable of either.

Each handler is typed with its own messages; here they meet as one type, and the table is what pairs them up.
"""


@dataclass(frozen=True, slots=True)
class Route:
    """One served API. `unsupported_version` makes the version-0 answer to unknown versions (ApiVersions alone).

    `advertised_min_version` is what ApiVersions says instead of `min_version`, -1 for no difference. `is_forwarded`:
    the active controller answers, and no version that it lacks is promised.
    """

    key: ApiKey
    min_version: int
    max_version: int
    handler: Handler
    request_class: type[Message]
    response_class: type[Message]
    unsupported_version: Callable[[], Message] | None = None
    advertised_min_version: int = -1
    is_forwarded: bool = False

    @property
    def is_advertised(self) -> bool:
        """APIs of our own are for our own tools: Kafka's clients are not told of keys that they could not name."""
        return self.key < FIRST_PRIVATE_KEY

    def decode(self, body: memoryview, version: int) -> Message:
        """The request in `body`. Raises DecodeError."""
        message, _end = decoder(self.request_class, version)(body, 0)
        return message


def route(
    key: ApiKey,
    handler: Handler,
    *,
    unsupported_version: Callable[[], Message] | None = None,
    advertised_min_version: int = -1,
) -> Route:
    """A row with all stable versions of the schemas."""
    api = API_BY_KEY[key]
    return Route(
        key,
        api.min_version,
        api.max_version - api.unstable,
        handler,
        request_class(key),
        response_class(key),
        unsupported_version,
        advertised_min_version,
    )
