"""The rack-aware replica selector (KIP-392): redirects consumers to a replica in their own rack.

The rule is in `broker.replication.read_replica`. The facts are the leader's view of its followers and the racks in the
cluster metadata.

A follower reads remote storage itself, but only the leader skips the holes in it and reads lost records from other
replicas. A consumer that a follower could not serve returns to the leader with the same offset, and the leader then
serves it. (Apache Kafka redirects it again, each time that it returns.)
"""

from collections.abc import Callable
from typing import Final

from cachetools import TTLCache

from broker.clock import Clock
from broker.metadata.image.metadata_image import MetadataImage
from broker.replication.leader import FollowerProgress, LeaderRole
from broker.replication.read_replica import ReplicaView, nearest_replica
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.reads import NO_REPLICA
from protocol.ids import BrokerId
from protocol.primitives import Uuid

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
POSITIONS_MAX: Final = 1_000
"""Number of remote positions whose redirection is remembered; the readers of a forgotten one are redirected again."""
REMEMBERED_MS: Final = 60_000
"""Time after the last fetch of a position during which its redirection is remembered."""


class RackAwareReplicaSelector:
    """The replica selector of a broker with `replica.selector.class` set to `RACK_AWARE_SELECTOR`."""

    def __init__(self, image: Callable[[], MetadataImage], clock: Clock) -> None:
        self._image = image
        self._clock = clock
        self._redirected: TTLCache[tuple[Uuid, int, int, str], bool] = TTLCache(
            POSITIONS_MAX, REMEMBERED_MS, clock.monotonic_ms
        )
        """Redirected remote positions: topic id, partition index, offset, rack."""

    def replica_for(self, partition: Partition, offset: int, rack: str, listener: str) -> BrokerId:
        """Return the broker from which a consumer in `rack`, connected to `listener`, should read `offset`.

        The result is -1 if this broker is the nearest, or if it is not the leader: followers do not know the others.
        It is -1 as well for a remote offset to which a consumer of that rack returns.
        """
        role = partition.role
        if not rack or not isinstance(role, LeaderRole):
            return NO_REPLICA
        log = partition.log
        leader = ReplicaView(role.broker_id, self._rack_of(role.broker_id, listener), 0, log.log_end_offset)
        members = [self._view(b, f, listener) for b, f in role.followers.items() if b in role.isr.committed]
        nearest = nearest_replica(rack, offset, leader, members)
        if nearest == role.broker_id:
            return NO_REPLICA
        is_remote = offset < log.local_log_start_offset
        return NO_REPLICA if is_remote and self._has_returned(partition, offset, rack) else nearest

    def _has_returned(self, partition: Partition, offset: int, rack: str) -> bool:
        """Remember the redirection of a position; return whether it was remembered already."""
        position = (partition.topic_id, partition.index, offset, rack)
        has_returned = position in self._redirected
        self._redirected[position] = True
        return has_returned

    def _view(self, broker_id: BrokerId, follower: FollowerProgress, listener: str) -> ReplicaView:
        lag_ms = int(self._clock.monotonic_ms()) - follower.caught_up_ms
        rack = self._rack_of(broker_id, listener)
        return ReplicaView(broker_id, rack, follower.log_start_offset, follower.log_end_offset, lag_ms)

    def _rack_of(self, broker_id: BrokerId, listener: str) -> str:
        """Return the rack of a broker; "" for a broker that the consumer cannot reach through `listener`."""
        broker = self._image().brokers.get(broker_id)
        is_reachable = broker is not None and not broker.fenced and listener in broker.endpoints
        return (broker.rack or "") if broker is not None and is_reachable else ""
