"""The bounds of a leader's log, for replicas that were out of range: two ListOffsets requests.

A request must not name a partition twice, so one request asks for the log end offsets and a second one for the log
start offsets, as in Kafka; both are under way together.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic

from broker.replication.fetch_actions import LogBound
from broker.replication.fetch_state import P, PartitionFetchState
from broker.runtime.replication.fetch_transport import LeaderConnection, Unanswered
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST: Final = -2
LATEST: Final = -1
_UNKNOWN: Final = LogBound(ErrorCode.NETWORK_EXCEPTION, -1)

_BoundsByName = dict[tuple[str, int], LogBound]


class BoundsLookup(Generic[P]):
    """One lookup for any number of replicas. `on_found(replica, start, end)` is called once for each, in order."""

    def __init__(
        self,
        broker_id: int,
        replicas: Sequence[PartitionFetchState[P]],
        on_found: Callable[[PartitionFetchState[P], LogBound, LogBound], None],
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._on_found = on_found
        self._found: dict[int, _BoundsByName] = {}

    def begin(self, connection: LeaderConnection) -> None:
        """Send both requests."""
        for timestamp in (LATEST, EARLIEST):
            connection.list_offsets(self._request(timestamp), partial(self._on_response, timestamp))

    def _request(self, timestamp: int) -> ListOffsetsRequest:
        """Build a request. With a replica id, LATEST is the log end offset instead of the high watermark."""
        topics: dict[str, ListOffsetsTopic] = {}
        for followed in self._replicas:
            name = followed.partition.topic
            topic = topics.setdefault(name, ListOffsetsTopic(name))
            topic.partitions.append(ListOffsetsPartition(followed.partition.index, followed.leader_epoch, timestamp))
        return ListOffsetsRequest(replica_id=self._broker_id, topics=list(topics.values()))

    def _on_response(self, timestamp: int, outcome: ListOffsetsResponse | Unanswered) -> None:
        self._found[timestamp] = {} if isinstance(outcome, Unanswered) else _by_name(outcome)
        if len(self._found) == 2:
            for followed in self._replicas:
                name = (followed.partition.topic, followed.partition.index)
                start, end = (self._found[which].get(name, _UNKNOWN) for which in (EARLIEST, LATEST))
                self._on_found(followed, start, end)


def _by_name(response: ListOffsetsResponse) -> _BoundsByName:
    return {
        (topic.name, each.partition_index): LogBound(each.error_code, each.offset)
        for topic in response.topics
        for each in topic.partitions
    }
