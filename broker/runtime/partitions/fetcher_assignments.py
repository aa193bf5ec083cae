"""Which replicas of this node follow whom, told to whoever fetches for them.

A replica follows from the moment when its reign begins, if its leader is registered; it follows anew in each reign, and
when its leader comes back at another address. It knows partitions by what they say of their role, and no fetcher.
"""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from broker.metadata.image.cluster_image import BrokerRegistration, ClusterDelta, RegisteredEndpoint
from broker.metadata.image.metadata_image import MetadataImage
from broker.runtime.partitions.partition import Partition


class FetcherManager(Protocol):
    """Keeps replicas up with their leaders. Told of a partition at any time, and perhaps of nothing new."""

    def follow(self, partition: Partition) -> None:
        """Fetch for this replica, from the leader and in the epoch that it names now; what was under way is void."""

    def unfollow(self, partition: Partition) -> None:
        """Fetch for it no more: it leads, has no leader, or is gone."""


class NoFetchers:
    """A FetcherManager for a node without fetchers, whose followers stay as they are."""

    def follow(self, partition: Partition) -> None:
        """Nothing happens."""

    def unfollow(self, partition: Partition) -> None:
        """Nothing happens."""


class ImageSource(Protocol):
    """Holds the latest image."""

    @property
    def image(self) -> MetadataImage: ...


class FetcherAssignments:
    """The replicas that are fetched for, by leader. `is_leaving` from the begin of this node's controlled shutdown."""

    def __init__(self, broker_id: int, source: FetcherManager, metadata: ImageSource) -> None:
        self.is_leaving = False
        self._broker_id = broker_id
        self._source = source
        self._metadata = metadata
        self._leaders: dict[Partition, int] = {}
        self._by_leader: dict[int, dict[Partition, None]] = {}
        """Also those whose leader is not registered, and who wait for it."""
        self._addresses: dict[int, Mapping[str, RegisteredEndpoint]] = {}

    def on_role(self, partition: Partition, *, is_new_reign: bool) -> None:
        """A partition has taken up or confirmed its role."""
        leader_id = partition.leader_id if partition.is_following and self._should_follow(partition) else None
        if leader_id is None:
            self.drop(partition)
        elif is_new_reign or self._leaders.get(partition) != leader_id:
            self._follow(partition, leader_id)

    def drop(self, partition: Partition) -> None:
        """The partition is hosted no longer, or has nobody to follow."""
        if self._forget(partition):
            self._source.unfollow(partition)

    def on_brokers(self, delta: ClusterDelta) -> None:
        """Leaders may have come, or have moved to other addresses."""
        for broker_id, broker in delta.changed_brokers.items():
            followers = self._by_leader.get(broker_id)
            if not followers or self._addresses.get(broker_id) == _address(broker):
                continue
            self._note_address(broker_id, broker)
            for partition in tuple(followers):
                # A cut that goes on for the old connection's sake is none of the new one's.
                partition.when_settled(partial(self._refollow, partition, broker_id))

    def _should_follow(self, partition: Partition) -> bool:
        """While this node leaves, it must not come back into the in-sync sets that it was taken out of."""
        if not self.is_leaving:
            return True
        registration = self._metadata.image.topics.partition(partition.topic_id, partition.index)
        return registration is not None and self._broker_id in registration.isr

    def _follow(self, partition: Partition, leader_id: int) -> None:
        self._forget(partition)
        self._leaders[partition] = leader_id
        followers = self._by_leader.setdefault(leader_id, {})
        if not followers:
            self._note_address(leader_id, self._metadata.image.brokers.get(leader_id))
        followers[partition] = None
        self._tell(partition, leader_id)

    def _refollow(self, partition: Partition, leader_id: int) -> None:
        if self._leaders.get(partition) == leader_id:
            self._tell(partition, leader_id)

    def _tell(self, partition: Partition, leader_id: int) -> None:
        if leader_id in self._addresses:
            self._source.follow(partition)
        else:
            self._source.unfollow(partition)

    def _note_address(self, broker_id: int, broker: BrokerRegistration | None) -> None:
        address = _address(broker)
        if address is None:
            self._addresses.pop(broker_id, None)
        else:
            self._addresses[broker_id] = address

    def _forget(self, partition: Partition) -> bool:
        leader_id = self._leaders.pop(partition, None)
        if leader_id is None:
            return False
        followers = self._by_leader[leader_id]
        del followers[partition]
        if not followers:
            del self._by_leader[leader_id]
            self._addresses.pop(leader_id, None)
        return True


def _address(broker: BrokerRegistration | None) -> Mapping[str, RegisteredEndpoint] | None:
    return None if broker is None else broker.endpoints
