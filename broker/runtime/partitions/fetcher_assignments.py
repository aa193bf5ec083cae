"""The leaders that this node's replicas follow, as instructions to the replica fetcher manager.

A replica follows from the beginning of a leader epoch, if the leader is registered. It follows anew in each leader
epoch, and when the leader changes its endpoints.
"""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from broker.metadata.image.cluster_image import BrokerRegistration, ClusterDelta, RegisteredEndpoint
from broker.replication.follower import FollowerRole
from broker.runtime.controller.metadata_cache import MetadataCache
from broker.runtime.partitions.hosted_follower import HostedFollower
from broker.runtime.partitions.partition import Partition


class FetcherManager(Protocol):
    """Keeps replicas up to date with their leaders. All calls are idempotent."""

    def follow(self, replica: HostedFollower) -> None:
        """Fetch for the replica from its present leader, in its present leader epoch; drop earlier work."""

    def unfollow(self, replica: HostedFollower) -> None:
        """Stop fetching for the replica: it leads, has no leader, or is no longer hosted."""


class FetcherAssignments:
    """The followers of this node, by leader. `is_shutting_down` is set when a controlled shutdown begins."""

    def __init__(self, broker_id: int, fetchers: FetcherManager, metadata: MetadataCache) -> None:
        self.is_shutting_down = False
        self._broker_id = broker_id
        self._fetchers = fetchers
        self._metadata = metadata
        self._leaders: dict[Partition, int] = {}
        self._by_leader: dict[int, dict[Partition, None]] = {}
        """Includes partitions whose leader is not registered yet."""
        self._endpoints: dict[int, Mapping[str, RegisteredEndpoint]] = {}

    def on_role(self, partition: Partition, *, is_new_epoch: bool) -> None:
        """Note that a partition has taken or confirmed its role."""
        leader_id = partition.leader_id if self._should_follow(partition) else None
        if leader_id is None:
            self.remove(partition)
        elif is_new_epoch or self._leaders.get(partition) != leader_id:
            self._follow(partition, leader_id)

    def remove(self, partition: Partition) -> None:
        """Stop fetching: the partition is no longer hosted, or has no leader to follow."""
        if self._forget(partition):
            self._fetchers.unfollow(partition.follower)

    def on_brokers(self, delta: ClusterDelta) -> None:
        """Follow anew where leaders have registered or changed their endpoints."""
        for broker_id, broker in delta.changed_brokers.items():
            followers = self._by_leader.get(broker_id)
            if not followers or self._endpoints.get(broker_id) == _endpoints_of(broker):
                continue
            self._note_endpoints(broker_id, broker)
            for partition in tuple(followers):
                # The former connection may have ordered a truncation that the new connection knows nothing of.
                partition.truncation.when_over(partial(self._follow_again, partition, broker_id))

    def _should_follow(self, partition: Partition) -> bool:
        """Whether to fetch. During a controlled shutdown, this broker must not rejoin an ISR that it has left."""
        if not isinstance(partition.role, FollowerRole):
            return False
        if not self.is_shutting_down:
            return True
        registration = self._metadata.image.topics.partition(partition.topic_id, partition.index)
        return registration is not None and self._broker_id in registration.isr

    def _follow(self, partition: Partition, leader_id: int) -> None:
        self._forget(partition)
        self._leaders[partition] = leader_id
        followers = self._by_leader.setdefault(leader_id, {})
        if not followers:
            self._note_endpoints(leader_id, self._metadata.image.brokers.get(leader_id))
        followers[partition] = None
        self._assign_fetcher(partition, leader_id)

    def _follow_again(self, partition: Partition, leader_id: int) -> None:
        if self._leaders.get(partition) == leader_id:
            self._assign_fetcher(partition, leader_id)

    def _assign_fetcher(self, partition: Partition, leader_id: int) -> None:
        if leader_id in self._endpoints:
            self._fetchers.follow(partition.follower)
        else:
            self._fetchers.unfollow(partition.follower)

    def _note_endpoints(self, broker_id: int, broker: BrokerRegistration | None) -> None:
        endpoints = _endpoints_of(broker)
        if endpoints is None:
            self._endpoints.pop(broker_id, None)
        else:
            self._endpoints[broker_id] = endpoints

    def _forget(self, partition: Partition) -> bool:
        leader_id = self._leaders.pop(partition, None)
        if leader_id is None:
            return False
        followers = self._by_leader[leader_id]
        del followers[partition]
        if not followers:
            del self._by_leader[leader_id]
            self._endpoints.pop(leader_id, None)
        return True


def _endpoints_of(broker: BrokerRegistration | None) -> Mapping[str, RegisteredEndpoint] | None:
    return None if broker is None else broker.endpoints
