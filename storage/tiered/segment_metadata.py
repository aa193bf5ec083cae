"""Metadata of one remote segment, and the events that change them (KIP-405, "RemoteLogSegmentMetadata").

Values only: `catalog/segment_state.py` has the state transitions, `catalog/metadata_records.py` the encoding.
"""

from dataclasses import replace
from enum import IntEnum
from typing import Final, NamedTuple

from protocol.ids import BrokerId, LeaderEpoch
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid, uuid_to_text

TOOL_BROKER_ID: Final = BrokerId(-1)
"""Broker id of events that tools publish: no broker."""
NO_TIMESTAMP: Final = -1
"""Largest timestamp of a segment without records."""


class TopicIdPartition(NamedTuple):
    """A partition of a topic id; a topic that is created again under its name has another id."""

    topic_id: Uuid
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class RemoteSegmentId(NamedTuple):
    """Id of one attempt to copy a segment, so that no two attempts use the same objects."""

    partition: TopicIdPartition
    id: Uuid

    def __str__(self) -> str:
        return f"{self.partition}/{uuid_to_text(self.id)}"


class SegmentState(IntEnum):
    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2
    DELETE_FINISHED = 3


class PartitionDeleteState(IntEnum):
    MARKED = 0
    STARTED = 1
    FINISHED = 2


class SegmentEpoch(NamedTuple):
    """Leader epoch of the records of a segment from `start_offset` on."""

    epoch: LeaderEpoch
    start_offset: int


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegment:
    """One segment in remote storage.

    `end_offset` is the last offset that the segment covers, even if compaction removed its record. `leader_epochs`
    ascend and are never empty; the first starts at `start_offset`. `size_bytes` is the size of the log file alone.
    Times are in milliseconds since 1970; `event_timestamp_ms` and `broker_id` belong to the last event.

    `compacted_to`: the segment was compacted in remote storage against all remote records below this offset; None for a
    segment as its leader copied it (see `remote_compaction.py`).
    """

    id: RemoteSegmentId
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: BrokerId
    event_timestamp_ms: int
    size_bytes: int
    leader_epochs: tuple[SegmentEpoch, ...]
    state: SegmentState = SegmentState.COPY_STARTED
    custom_metadata: bytes | None = None
    txn_index_empty: bool = False
    compacted_to: int | None = None

    @property
    def is_given_up_mark(self) -> bool:
        """Whether this entry marks offsets that an operator gave up, until the log starts above them.

        A mark has no objects and stays in DELETE_STARTED: every reader of the metadata, Kafka too, knows such entries.
        """
        return (
            self.broker_id == TOOL_BROKER_ID
            and not self.size_bytes
            and self.max_timestamp_ms == NO_TIMESTAMP
            and self.state is SegmentState.DELETE_STARTED
        )

    @property
    def is_compacted(self) -> bool:
        return self.compacted_to is not None

    def __post_init__(self) -> None:
        if not self.leader_epochs:
            raise ValueError(f"segment {self.id} has no leader epochs")
        if not 0 <= self.start_offset <= self.end_offset:
            raise ValueError(f"segment {self.id} has invalid offsets: {self.start_offset} to {self.end_offset}")

    def updated(self, update: "SegmentUpdate") -> "RemoteSegment":
        """Return this segment after an event; custom metadata stay unless the event has others."""
        return replace(
            self,
            state=update.state,
            event_timestamp_ms=update.event_timestamp_ms,
            broker_id=update.broker_id,
            custom_metadata=self.custom_metadata if update.custom_metadata is None else update.custom_metadata,
        )


class SegmentUpdate(NamedTuple):
    """An event of a known segment.

    `only_unfinished`: the deletion of a copy that was judged abandoned or failed, which has no effect if COPY_FINISHED
    comes before it in the log: replicas may have dropped their local records. Brokers of Apache Kafka ignore the flag.
    """

    id: RemoteSegmentId
    state: SegmentState
    event_timestamp_ms: int
    broker_id: BrokerId
    custom_metadata: bytes | None = None
    only_unfinished: bool = False


class PartitionDelete(NamedTuple):
    """An event in the removal of a partition from remote storage."""

    partition: TopicIdPartition
    state: PartitionDeleteState
    event_timestamp_ms: int
    broker_id: BrokerId
