"""This node as other replicas of the metadata log meet it: what handlers of the quorum's APIs ask."""

from collections.abc import Awaitable
from typing import Protocol

from broker.quorum.description import QuorumDescription
from broker.quorum.messages import Request, Response


class QuorumPeer(Protocol):
    """A replica; `broker.runtime.quorum.driver.QuorumDriver` is one."""

    def handle(self, request: Request) -> Awaitable[Response]:
        """The answer of the right type for the request. Raises KafkaError if the replica stops."""
        ...

    def describe(self) -> QuorumDescription:
        """The quorum as its leader sees it."""
        ...
