"""Forgetting eligible leader replicas without losing the trace of who has a partition's data (KIP-966).

Lists of eligible leaders go stale when `min.insync.replicas` changes, since the high watermark may then pass their
members by, and when nobody maintains them any more. Not so where nobody leads and the in-sync set is empty: nothing is
written there, and the list is all that is known of who has the data.
"""

from collections.abc import Iterator

from broker.metadata.controller.state import ControllerState
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.partition_index import PartitionId
from broker.metadata.image.records import VersionedRecord
from protocol.messages.metadata_records import ClearElrRecord, PartitionChangeRecord


def cleared_eligible_leaders(state: ControllerState, topic: str | None) -> Iterator[VersionedRecord]:
    """The records that clear the lists of one topic, or of all (None), but for those that are the last trace."""
    yield VersionedRecord(ClearElrRecord(topic_name=topic or ""), 0)
    for partition, registration in _last_traces(state):
        holder = state.image.topics.by_id(partition.topic_id)
        if topic is None or (holder is not None and holder.name == topic):
            change = _change(partition)
            change.eligible_leader_replicas = list(registration.elr)
            change.last_known_elr = list(registration.last_known_elr)
            yield VersionedRecord(change, state.version.partition_record_version)


def eligible_leaders_disabled(state: ControllerState) -> Iterator[VersionedRecord]:
    """The records that end the lists for good: the in-sync set, which takes over, gets who was in the last traces."""
    for partition, registration in _last_traces(state):
        change = _change(partition)
        change.isr = list(registration.elr or registration.last_known_elr)
        yield VersionedRecord(change, state.version.partition_record_version)
    yield VersionedRecord(ClearElrRecord(topic_name=""), 0)


def _last_traces(state: ControllerState) -> Iterator[tuple[PartitionId, PartitionRegistration]]:
    for partition in state.index.leaderless():
        registration = state.image.topics.partition(*partition)
        assert registration is not None, "the index follows the image"
        if not registration.isr and (registration.elr or registration.last_known_elr):
            yield partition, registration


def _change(partition: PartitionId) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=partition.partition, topic_id=partition.topic_id)
