"""Where to go instead (KIP-951): the leader that a refused client should turn to, told with the refusal.

A client that gets NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH adopts the leader named beside it at once, and saves a
round of Metadata. Produce (10+) and Fetch (12+, with endpoints from 16) share this.
"""

from typing import NamedTuple

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_image import TopicImage

UNKNOWN = -1


class CurrentLeader(NamedTuple):
    """A leader by broker id and the epoch of its reign; -1 where unknown."""

    leader_id: int
    leader_epoch: int


class LeaderAddress(NamedTuple):
    """Where a broker can be reached on the listener that the client came in on."""

    node_id: int
    host: str
    port: int
    rack: str | None


class LeaderHints:
    """The leaders named in one response, and their addresses."""

    def __init__(self, image: MetadataImage, listener: str) -> None:
        self._image = image
        self._listener = listener
        self._named: dict[int, None] = {}

    def leader_of(self, topic: TopicImage | None, index: int) -> CurrentLeader:
        """Who leads a partition by the metadata that this broker has; remembered for `addresses`."""
        registration = None if topic is None else topic.partition(index)
        if registration is None:
            return CurrentLeader(UNKNOWN, UNKNOWN)
        if registration.has_leader:
            self._named[registration.leader] = None
        return CurrentLeader(registration.leader, registration.leader_epoch)

    def addresses(self) -> list[LeaderAddress]:
        """The addresses of the leaders named so far, as far as they have this listener."""
        found: list[LeaderAddress] = []
        for broker_id in self._named:
            broker = self._image.brokers.get(broker_id)
            endpoint = None if broker is None else broker.endpoints.get(self._listener)
            if broker is not None and endpoint is not None:
                found.append(LeaderAddress(broker_id, endpoint.host, endpoint.port, broker.rack))
        return found
