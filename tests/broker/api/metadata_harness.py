"""Collaborators of handlers in tests: an image, a controller that commits at once, a request's context."""

from collections.abc import Awaitable
from typing import TypeVar

from broker.api.pipeline.permission import Unrestricted
from broker.api.serving.context import RequestContext
from broker.api.serving.route import Forwarding, Handler, Route, route
from broker.metadata.image.config_image import ConfigsImage
from broker.metadata.image.metadata_image import MetadataImage
from broker.net.request import ConnectionInfo, Request
from broker.runtime.controller.driver import Command
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.headers import RequestHeader
from tests.broker.metadata.images import LISTENER, Cluster

R = TypeVar("R")


class FixedMetadata:
    """A source of metadata that changes only when a test changes it."""

    def __init__(self, image: MetadataImage, controller_id: int | None = 1) -> None:
        self.image = image
        self.controller_id = controller_id


class LiveCluster(Cluster):
    """A controller that commits at once, and the source of the metadata it writes."""

    controller_id: int | None = 1
    is_active = True

    def submit(self, command: Command[R]) -> Awaitable[R]:
        return self._answer(command)

    async def _answer(self, command: Command[R]) -> R:
        if not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return self.write(command(self.controller, self.now_ms))

    @property
    def configs(self) -> ConfigsImage:
        return self.image.configs


def unrestricted_route(key: ApiKey, handler: Handler, forwarding: Forwarding = Forwarding.LOCAL) -> Route:
    """Return a row that needs no permission."""
    return route(key, handler, Unrestricted("test"), forwarding=forwarding)


def context(api_version: int, *, listener: str = LISTENER, api_key: int = 0) -> RequestContext:
    """Return the context of a request of this version."""
    connection = ConnectionInfo("test", listener, "127.0.0.1", 40_000)
    header = RequestHeader(api_key, api_version, 1, "client")
    return RequestContext(api_version, "client", connection, Request(header, memoryview(b""), connection, 0))
