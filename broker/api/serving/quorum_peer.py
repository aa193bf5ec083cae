"""The seam between handlers of the quorum's APIs and this node's replica of the metadata log."""

from collections.abc import Awaitable
from typing import Protocol

from broker.quorum.description import QuorumDescription
from broker.quorum.messages import Request, Response


class QuorumPeer(Protocol):
    """A replica; `broker.runtime.quorum.driver.QuorumDriver` is one."""

    def handle(self, request: Request) -> Awaitable[Response]:
        """Return the response of the type that matches the request. Raises KafkaError if the replica stops."""
        ...

    def describe(self) -> QuorumDescription:
        """Return the quorum as its leader sees it."""
        ...
