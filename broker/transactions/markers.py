"""Queues of transaction markers: the rules by which a coordinator writes them to partitions (KIP-98).

A decided transaction needs a marker on each of its partitions. Each partition's leader has a queue, of which one
WriteTxnMarkers request at a time carries everything that has waited. Partitions are tried again without limit, until
each has its marker: an undecided transaction would hold back its partitions for ever.
"""

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Final, NamedTuple

from broker.transactions.state import Transaction, TransactionPartition
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

MAX_PARTITIONS_PER_REQUEST: Final = 2_000
"""Limit of the markers in one request, so that a leader appends them in one short turn."""

_FENCED: Final = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED))
_UNSUPPORTED: Final = frozenset((ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION))


@lazy_dataclass(eq=False, slots=True, weakref_slot=True)
class PendingMarkers:
    """A decided transaction, and the partitions that lack its marker.

    `coordinator_epoch` is the leader epoch of the coordinator's partition. `is_dropped` ends the work on the markers: a
    newer decision of the id, another coordinator, or a fenced one replaces them.
    """

    transactional_id: str
    transaction: Transaction
    coordinator_epoch: int
    missing: set[TransactionPartition] = field(init=False)
    is_dropped: bool = False

    def __post_init__(self) -> None:
        self.missing = set(self.transaction.partitions)

    def lacks(self, partition: TransactionPartition) -> bool:
        return not self.is_dropped and partition in self.missing


class DueMarker(NamedTuple):
    """The marker of a transaction for one of its partitions."""

    markers: PendingMarkers
    partition: TransactionPartition


class MarkerOutcome(NamedTuple):
    """The result of one request: transactions with all their markers, fenced ones, and markers to send again."""

    written: list[PendingMarkers]
    fenced: list[PendingMarkers]
    again: list[DueMarker]

    def add(self, due: DueMarker, code: int) -> None:
        """Apply the result of one partition."""
        markers, partition = due
        if not markers.lacks(partition):
            return
        if code in _FENCED:
            markers.is_dropped = True
            self.fenced.append(markers)
        elif code != ErrorCode.NONE and code not in _UNSUPPORTED:
            self.again.append(due)
        else:
            markers.missing.discard(partition)
            if not markers.missing:
                self.written.append(markers)


class MarkerQueue:
    """The markers for the partitions that one broker leads."""

    def __init__(self) -> None:
        self._waiting: list[DueMarker] = []
        self._in_flight: list[DueMarker] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_flight)

    def add(self, due: DueMarker) -> None:
        """Queue a marker."""
        self._waiting.append(due)

    def take_request(self) -> WriteTxnMarkersRequest | None:
        """Return a request with the markers that wait; None while one is in flight, or if no marker waits.

        A request names a producer once, because results are by producer; other transactions of it wait.
        """
        if self._in_flight:
            return None
        by_producer: dict[int, PendingMarkers] = {}
        rest: list[DueMarker] = []
        for due in self._waiting:
            if not due.markers.lacks(due.partition):
                continue
            owner = by_producer.setdefault(due.markers.transaction.producer_id, due.markers)
            if owner is due.markers and len(self._in_flight) < MAX_PARTITIONS_PER_REQUEST:
                self._in_flight.append(due)
            else:
                rest.append(due)
        self._waiting = rest
        return WriteTxnMarkersRequest(markers=list(_markers(self._in_flight))) if self._in_flight else None

    def on_response(self, response: WriteTxnMarkersResponse) -> MarkerOutcome:
        """Apply the results of the request in flight."""
        codes = {
            (marker.producer_id, TransactionPartition(topic.name, partition.partition_index)): partition.error_code
            for marker in response.markers
            for topic in marker.topics
            for partition in topic.partitions
        }
        outcome = MarkerOutcome([], [], [])
        in_flight, self._in_flight = self._in_flight, []
        for due in in_flight:
            key = due.markers.transaction.producer_id, due.partition
            outcome.add(due, codes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR))
        return outcome

    def on_failure(self) -> list[DueMarker]:
        """Return the markers of a request without response, and those that wait: the leaders may have changed."""
        due, self._in_flight, self._waiting = [*self._in_flight, *self._waiting], [], []
        return [each for each in due if each.markers.lacks(each.partition)]


def _markers(in_flight: Iterable[DueMarker]) -> Iterator[WritableTxnMarker]:
    partitions: dict[PendingMarkers, dict[str, list[int]]] = {}
    for markers, (topic, partition) in in_flight:
        partitions.setdefault(markers, {}).setdefault(topic, []).append(partition)
    for markers, topics in partitions.items():
        transaction = markers.transaction
        yield WritableTxnMarker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state.is_commit,
            [WritableTxnMarkerTopic(topic, indexes) for topic, indexes in topics.items()],
            markers.coordinator_epoch,
            transaction.version,
        )
