"""Hints to the current leader in responses that refuse a partition (KIP-951).

A client that gets NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH adopts the leader named beside the error at once and
saves a round of Metadata. Produce (10+) and Fetch (12+, with endpoints from 16) share this.
"""

from typing import Final, NamedTuple

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_image import TopicImage
from protocol.ids import BrokerId, LeaderEpoch


class CurrentLeader(NamedTuple):
    """A leader by broker id and leader epoch; -1 where unknown."""

    leader_id: BrokerId
    leader_epoch: LeaderEpoch


UNKNOWN_LEADER: Final = CurrentLeader(BrokerId(-1), LeaderEpoch(-1))


class LeaderAddress(NamedTuple):
    """A broker's endpoint on the listener of the client."""

    node_id: int
    host: str
    port: int
    rack: str | None


class LeaderHints:
    """The leaders named in one response, and their endpoints."""

    def __init__(self, image: MetadataImage, listener: str) -> None:
        self._image = image
        self._listener = listener
        self._named: dict[int, None] = {}

    def leader_of(self, topic: TopicImage | None, index: int) -> CurrentLeader:
        """Return the leader of a partition in this broker's metadata, and remember it for `addresses`."""
        registration = None if topic is None else topic.partition(index)
        if registration is None:
            return UNKNOWN_LEADER
        if registration.has_leader:
            self._named[registration.leader] = None
        return CurrentLeader(registration.leader, registration.leader_epoch)

    def addresses(self) -> list[LeaderAddress]:
        """Return the endpoints of the remembered leaders that have this listener."""
        found: list[LeaderAddress] = []
        for broker_id in self._named:
            broker = self._image.brokers.get(broker_id)
            endpoint = None if broker is None else broker.endpoints.get(self._listener)
            if broker is not None and endpoint is not None:
                found.append(LeaderAddress(broker_id, endpoint.host, endpoint.port, broker.rack))
        return found
