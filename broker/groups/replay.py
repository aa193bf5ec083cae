"""Replay: turns records of the log back into groups and offsets.

A group's record is its state at the end of its last rebalance, so a group with members returns Stable, in its last
generation. While a node leads, group records describe the state of the live group and are not replayed. Group
tombstones and offsets are always replayed.

A million offsets take seconds to replay. A load may therefore park them: the offsets of a group are replayed when the
group is used. Groups with members are few and are replayed at once.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, get_args

from broker.coordination.log_fold import FoldRule
from broker.coordination.parked_records import ParkedRecords
from broker.coordination.snapshot_records import KeptRecord
from broker.groups.classic import ClassicGroup
from broker.groups.consumer.records import ConsumerGroupEvent
from broker.groups.directory import GroupDirectory
from broker.groups.member import ClassicGroupMember, SupportedProtocol
from broker.groups.offsets import OffsetStore
from broker.groups.records import GroupEvent, GroupRemoved, GroupWritten, OffsetCommitted, OffsetRemoved
from broker.groups.share.records import ShareGroupEvent
from broker.groups.state import GroupState
from broker.groups.streams.records import StreamsGroupEvent
from protocol.messages.group_records import GroupMetadataValue, MemberMetadata

_TYPE_BYTES: Final = 2
_GROUP_AT: Final = 4
"""Position of the group id in the key of an offset: after an int16 record type and an int16 length."""
_OFFSET_TYPES: Final = frozenset({b"\0\0", b"\0\1"})


def group_of_offset(key: bytes) -> bytes | None:
    """Return the group id in the key of a committed offset; None for the keys of other records."""
    if key[:_TYPE_BYTES] not in _OFFSET_TYPES or len(key) < _GROUP_AT:
        return None
    return key[_GROUP_AT : _GROUP_AT + (key[_TYPE_BYTES] << 8 | key[_TYPE_BYTES + 1])]


GROUP_FOLD: Final = FoldRule(group_of_offset, parks=True)


class Replay:
    """Applies events to the group table and the offset store."""

    def __init__(self, groups: GroupDirectory, offsets: OffsetStore) -> None:
        self._groups = groups
        self._offsets = offsets
        self._tables: dict[type[Any], Callable[[Any], object]] = {
            OffsetRemoved: lambda event: offsets.replay_removal(event.key),
            GroupWritten: lambda event: groups.classic.put(group_from_record(event.group_id, event.value)),
            GroupRemoved: lambda event: groups.classic.remove(event.group_id),
            **dict.fromkeys(get_args(ConsumerGroupEvent), groups.consumer.replay),
            **dict.fromkeys(get_args(StreamsGroupEvent), groups.streams.replay),
            **dict.fromkeys(get_args(ShareGroupEvent), groups.share.replay),
        }

    def apply(self, event: GroupEvent, offset: int, producer_id: int) -> None:
        """Apply an event that is in the log at `offset`."""
        if isinstance(event, OffsetCommitted):
            self._commit(event, offset, producer_id)
        else:
            self._tables[type(event)](event)

    def _commit(self, event: OffsetCommitted, offset: int, producer_id: int) -> None:
        key, value = event
        if self._groups.find(key.group_id) is None:
            self._groups.classic.put(ClassicGroup(key.group_id))  # a simple group, which has no record of its own
        self._offsets.replay_commit(key, value, offset, producer_id)


def group_from_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Build the group that a GroupMetadata record describes.

    Members without a leader come from the downgrade of a consumer group that a member left (`consumer/migration.py`).
    """
    state = GroupState.STABLE if value.members else GroupState.EMPTY
    group = ClassicGroup(group_id, state=state, state_since_ms=value.current_state_timestamp)
    group.generation = value.generation
    group.leader = value.leader
    group.awaits_rebalance = bool(value.members) and value.leader is None
    group.protocol = value.protocol
    group.protocol_type = value.protocol_type or None
    for member in _members(value.members, value.protocol or ""):
        group.add(member, group.protocol_type)
    group.refresh_topics()
    return group


def _members(stored: Iterable[MemberMetadata], protocol: str) -> Iterable[ClassicGroupMember]:
    for each in stored:
        yield ClassicGroupMember(
            member_id=each.member_id,
            instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            rebalance_timeout_ms=each.session_timeout if each.rebalance_timeout == -1 else each.rebalance_timeout,
            session_timeout_ms=each.session_timeout,
            protocols=(SupportedProtocol(protocol, each.subscription),),
            assignment=each.assignment,
        )


class ParkedOffsets:
    """The parked offsets of a shard. `replay` applies a record to the shard."""

    def __init__(self, replay: Callable[[KeptRecord], None]) -> None:
        self._replay = replay
        self._parked: ParkedRecords | None = None

    @property
    def is_empty(self) -> bool:
        """Whether every offset of the log is replayed."""
        return self._parked is None

    def park(self, records: ParkedRecords) -> None:
        """Take over the records of a load."""
        self._parked = None if records.is_empty else records

    def replay_group(self, group_id: str) -> None:
        """Replay the offsets of a group, unless that is done."""
        if self._parked is not None:
            self._apply(self._parked.take(group_id.encode()))

    def replay_some(self) -> None:
        """Replay the offsets of some groups."""
        if self._parked is not None:
            self._apply(self._parked.take_any())

    def _apply(self, records: Iterator[KeptRecord]) -> None:
        for record in records:
            self._replay(record)
        if self._parked is not None and self._parked.is_empty:
            self._parked = None
