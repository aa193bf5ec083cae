"""One row of a listener's table of APIs: key, versions, handler, forwarding and required permission."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from broker.api.pipeline.permission import Requirement, Unrestricted
from broker.api.serving.context import RequestContext
from protocol.api_keys import API_BY_KEY, FIRST_PRIVATE_KEY, ApiKey, request_class, response_class
from protocol.compiler import decoder
from protocol.messages import Message

Handler = Callable[[Any, RequestContext], Any]
"""Takes the decoded request and its context; returns the response, None (no response) or an awaitable of either.

Each handler is typed with its own messages. The table pairs handlers with APIs, so here they share one type.
"""


class Forwarding(Enum):
    """The node that answers requests of an API."""

    LOCAL = "local"
    """The node that receives the request."""
    TO_CONTROLLER = "to controller"
    """The active controller: brokers forward the request in an envelope, controllers accept it in one (KIP-590)."""


@dataclass(frozen=True, slots=True)
class Route:
    """One served API.

    `permission` is what the API requires of a principal, or the reason why it requires nothing.
    `unsupported_version` builds the version-0 response to unknown versions (ApiVersions alone).
    `advertised_min_version` replaces the lowest of `versions` in ApiVersions; -1 for no difference.
    """

    key: ApiKey
    versions: range
    handler: Handler
    forwarding: Forwarding
    permission: Requirement | Unrestricted
    request_class: type[Message]
    response_class: type[Message]
    unsupported_version: Callable[[], Message] | None = None
    advertised_min_version: int = -1

    @property
    def min_version(self) -> int:
        """The lowest version that is served."""
        return self.versions.start

    @property
    def max_version(self) -> int:
        """The highest version that is served."""
        return self.versions.stop - 1

    @property
    def is_forwarded(self) -> bool:
        """Whether the active controller answers."""
        return self.forwarding is Forwarding.TO_CONTROLLER

    @property
    def is_advertised(self) -> bool:
        """Whether ApiVersions lists the API. Kafka's clients have no name for keys of this project's own tools."""
        return self.key < FIRST_PRIVATE_KEY

    def decode(self, body: memoryview, version: int) -> Message:
        """Decode the request in `body`. Raises DecodeError."""
        message, _end = decoder(self.request_class, version)(body, 0)
        return message


def route(
    key: ApiKey,
    handler: Handler,
    permission: Requirement | Unrestricted,
    *,
    forwarding: Forwarding = Forwarding.LOCAL,
    min_version: int | None = None,
    unsupported_version: Callable[[], Message] | None = None,
    advertised_min_version: int = -1,
    serves_unstable: bool = False,
) -> Route:
    """Return a row with all stable versions of the schemas, or all versions, from `min_version` on if given."""
    api = API_BY_KEY[key]
    left_out = 0 if serves_unstable else int(api.unstable)
    return Route(
        key,
        range(api.min_version if min_version is None else min_version, api.max_version - left_out + 1),
        handler,
        forwarding,
        permission,
        request_class(key),
        response_class(key),
        unsupported_version,
        advertised_min_version,
    )
