"""The consumer protocol that classic members embed in JoinGroup and SyncGroup: subscriptions and assignments.

Both begin with an int16 version. A later version than the known ones is read as the latest known one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from broker.groups.consumer.assignment import NO_PARTITIONS, Assignment, assignment_from, in_order
from broker.groups.consumer.topics import TopicsView
from broker.groups.member import SupportedProtocol
from protocol.compiler import decode, encode_bytes
from protocol.errors import DecodeError
from protocol.messages.common_records import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

_VERSION_BYTES = 2


class EmbeddedSubscription(NamedTuple):
    """The subscription of a classic member."""

    topics: frozenset[str]
    owned: Assignment
    rack_id: str | None


def embedded_subscription(protocols: Sequence[SupportedProtocol], topics: TopicsView) -> EmbeddedSubscription:
    """Return the subscription of the preferred protocol. Raise DecodeError for a malformed one."""
    metadata = protocols[0].metadata
    version = min(_version(metadata), ConsumerProtocolSubscription.MAX_VERSION)
    message, _ = decode(ConsumerProtocolSubscription, metadata, version, _VERSION_BYTES)
    owned = _by_id([(each.topic, each.partitions) for each in message.owned_partitions], topics)
    return EmbeddedSubscription(frozenset(message.topics), owned, message.rack_id)


def embedded_assignment(data: bytes, topics: TopicsView) -> Assignment:
    """Return the partitions of an assignment; no bytes mean none. Raise DecodeError for a malformed one."""
    if not data:
        return NO_PARTITIONS
    version = min(_version(data), ConsumerProtocolAssignment.MAX_VERSION)
    message, _ = decode(ConsumerProtocolAssignment, data, version, _VERSION_BYTES)
    return _by_id([(each.topic, each.partitions) for each in message.assigned_partitions], topics)


def assignment_bytes(assignment: Assignment, protocol: SupportedProtocol, topics: TopicsView) -> bytes:
    """Return an assignment in the version of the member's subscription; deleted topics are left out."""
    version = min(_version(protocol.metadata), ConsumerProtocolAssignment.MAX_VERSION)
    named = ((topics.name_of(topic_id), partitions) for topic_id, partitions in in_order(assignment))
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(name, partitions) for name, partitions in named if name is not None
        ],
        user_data=None,
    )
    return version.to_bytes(_VERSION_BYTES, "big") + encode_bytes(message, version)


def _by_id(named: Sequence[tuple[str, Sequence[int]]], topics: TopicsView) -> Assignment:
    found = ((topics.describe(name), partitions) for name, partitions in named)
    return assignment_from(
        (topic.topic_id, partition) for topic, partitions in found if topic is not None for partition in partitions
    )


def _version(data: bytes) -> int:
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version < 0:
        raise DecodeError("the embedded consumer protocol has no valid version")
    return version
