"""Markers of this node's transaction coordinator for partitions that this node leads, without a request (KIP-98).

Kafka sends them over the network like any other, and so does a coordinator whose partition another node leads
(`transaction_markers.py`). Nothing passes a listener here, so neither authorization nor quotas apply.
"""

from collections.abc import Callable

from broker.clock import Clock
from broker.runtime.partitions.partition import ACKS_ALL
from broker.runtime.partitions.registry import Partitions
from broker.runtime.partitions.transaction_marker import WritableMarker, append_marker
from broker.transactions.markers import DueMarker
from protocol.errors import ErrorCode, KafkaError


class OwnMarkers:
    """Appends markers to partitions of this node."""

    def __init__(self, partitions: Partitions, clock: Clock) -> None:
        self._partitions = partitions
        self._clock = clock

    def write(self, due: DueMarker, done: Callable[[ErrorCode], None]) -> None:
        """Append a marker. `done` gets NONE once the in-sync replicas have it, or the error.

        The wait ends with the commit or with this leadership, so a slow replica does not repeat the marker.
        """
        transaction = due.markers.transaction
        marker = WritableMarker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state.is_commit,
            due.markers.coordinator_epoch,
            transaction.version,
        )
        try:
            partition = self._partitions.hosted(due.partition.topic, due.partition.partition)
            end = append_marker(partition, marker, self._clock.now_ms()).last_offset + 1
            outcome = partition.outcome(end, ACKS_ALL)
            if outcome is None:
                partition.when_acknowledged(end, ACKS_ALL, done)
                return
        except KafkaError as error:
            outcome = error.code
        done(outcome)
