"""The preferred read replica of a consumer (KIP-392): the nearest replica that has the requested offset."""

from collections.abc import Sequence

from protocol.ids import BrokerId
from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica that could serve a consumer. `rack` is "" if unknown; `lag_ms` is the time since the replica was caught
    up."""

    broker_id: BrokerId
    rack: str
    log_start_offset: int
    log_end_offset: int
    lag_ms: int = 0

    def holds(self, offset: int) -> bool:
        return self.log_start_offset <= offset <= self.log_end_offset


def nearest_replica(rack: str, offset: int, leader: ReplicaView, followers: Sequence[ReplicaView]) -> BrokerId:
    """Return the broker to read from: the leader if it is in the consumer's rack or no other replica is, otherwise the
    most caught-up in-sync follower of that rack that has `offset` (Kafka's RackAwareReplicaSelector)."""
    if not rack or leader.rack == rack:
        return leader.broker_id
    near = [f for f in followers if f.rack == rack and f.holds(offset)]
    if not near:
        return leader.broker_id
    return max(near, key=lambda f: (f.log_end_offset, -f.lag_ms, -f.broker_id)).broker_id
