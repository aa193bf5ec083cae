"""Clearing eligible leader replicas without losing track of the replicas that hold a partition's data (KIP-966).

The lists become stale when `min.insync.replicas` changes, because the high watermark may then pass their members, and
when the feature is disabled. A leaderless partition with an empty in-sync set is an exception: no records are appended,
and the list is the only evidence of the replicas that have the data.
"""

from collections.abc import Iterator

from broker.metadata.controller.state import ControllerState
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.partition_index import PartitionId
from broker.metadata.image.records import VersionedRecord
from protocol.messages.metadata_records import ClearElrRecord, PartitionChangeRecord


def cleared_eligible_leaders(state: ControllerState, topic: str | None) -> Iterator[VersionedRecord]:
    """Return the records that clear the lists of one topic or all (None), except lists that are the only evidence."""
    yield VersionedRecord(ClearElrRecord(topic_name=topic or ""), 0)
    for partition, registration in _only_evidence(state):
        holder = state.image.topics.by_id(partition.topic_id)
        if topic is None or (holder is not None and holder.name == topic):
            change = _change(partition)
            change.eligible_leader_replicas = list(registration.elr)
            change.last_known_elr = list(registration.last_known_elr)
            yield VersionedRecord(change, state.version.partition_record_version)


def eligible_leaders_disabled(state: ControllerState) -> Iterator[VersionedRecord]:
    """Return the records that end the lists: members of lists that are the only evidence become in-sync replicas."""
    for partition, registration in _only_evidence(state):
        change = _change(partition)
        change.isr = list(registration.elr or registration.last_known_elr)
        yield VersionedRecord(change, state.version.partition_record_version)
    yield VersionedRecord(ClearElrRecord(topic_name=""), 0)


def _only_evidence(state: ControllerState) -> Iterator[tuple[PartitionId, PartitionRegistration]]:
    for partition in state.index.leaderless():
        registration = state.image.topics.partition(*partition)
        assert registration is not None, "the index and the image agree"
        if not registration.isr and (registration.elr or registration.last_known_elr):
            yield partition, registration


def _change(partition: PartitionId) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=partition.partition, topic_id=partition.topic_id)
