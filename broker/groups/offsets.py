"""The committed offsets of a shard, and the pending offsets of open transactions.

All content follows from the log: only `replay_…` and `end_transaction` change it. Offsets written under a producer id
stay pending and invisible until the producer's marker: COMMIT moves them to the committed offsets, ABORT drops them.
The record offsets decide which commit of a partition counts, not the order of replay, because compaction may have
removed the earlier commit and kept its transaction's marker.
"""

from collections.abc import Callable, Iterator, Mapping

from broker.groups.metrics import GroupMetrics
from broker.groups.records import CommittedOffset, OffsetKey

_NO_TOPICS: Mapping[str, Mapping[int, CommittedOffset]] = {}


class _Offsets:
    """Offsets by group, topic and partition, without empty levels."""

    __slots__ = ("groups",)

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, dict[int, CommittedOffset]]] = {}

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        return self.groups.get(key.group_id, _NO_TOPICS).get(key.topic, {}).get(key.partition)

    def put(self, key: OffsetKey, value: CommittedOffset) -> CommittedOffset | None:
        """Store an offset and return the previous one."""
        partitions = self.groups.setdefault(key.group_id, {}).setdefault(key.topic, {})
        previous = partitions.get(key.partition)
        partitions[key.partition] = value
        return previous

    def pop(self, key: OffsetKey) -> CommittedOffset | None:
        topics = self.groups.get(key.group_id)
        partitions = None if topics is None else topics.get(key.topic)
        if topics is None or partitions is None:
            return None
        removed = partitions.pop(key.partition, None)
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self.groups[key.group_id]
        return removed

    def keys_of(self, group_id: str) -> Iterator[OffsetKey]:
        for topic, partitions in self.groups.get(group_id, _NO_TOPICS).items():
            for partition in partitions:
                yield OffsetKey(group_id, topic, partition)


class OffsetStore:
    """Committed and pending offsets. A group id may have offsets without any members.

    `before_use` replays the committed offsets of a group that are not replayed yet.
    """

    def __init__(self, metrics: GroupMetrics, before_use: Callable[[str], None]) -> None:
        self._committed = _Offsets()
        self._pending: dict[int, _Offsets] = {}
        self._groups_by_producer: dict[int, set[str]] = {}
        self._producers_by_group: dict[str, set[int]] = {}
        self._groups_by_topic: dict[str, set[str]] = {}
        self._metrics = metrics
        self._before_use = before_use

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        self._before_use(key.group_id)
        return self._committed.get(key)

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """Return the group's committed offsets by topic and partition."""
        self._before_use(group_id)
        return self._committed.groups.get(group_id, _NO_TOPICS)

    def has_offsets(self, group_id: str) -> bool:
        self._before_use(group_id)
        return group_id in self._committed.groups

    def has_open_transaction(self, group_id: str) -> bool:
        """Whether a producer's marker is still missing for offsets of this group."""
        return group_id in self._producers_by_group

    def is_pending(self, key: OffsetKey) -> bool:
        """Whether an open transaction would commit an offset for this partition."""
        producers = self._producers_by_group.get(key.group_id, ())
        return any(self._pending[producer].get(key) is not None for producer in producers)

    def keys_of_group(self, group_id: str) -> list[OffsetKey]:
        """Return every key of the group, committed or pending, each once."""
        self._before_use(group_id)
        keys = dict.fromkeys(self._committed.keys_of(group_id))
        for producer in self._producers_by_group.get(group_id, ()):
            keys.update(dict.fromkeys(self._pending[producer].keys_of(group_id)))
        return list(keys)

    def keys_of_topics(self, topics: set[str]) -> list[OffsetKey]:
        """Return every key of the topics in any group, committed or pending, each once."""
        groups = {group_id for topic in topics for group_id in self._groups_by_topic.get(topic, ())}
        groups.update(self._producers_by_group)
        return [key for group_id in sorted(groups) for key in self.keys_of_group(group_id) if key.topic in topics]

    # Replay.

    def replay_commit(self, key: OffsetKey, value: CommittedOffset, record_offset: int, producer_id: int) -> None:
        """Apply a commit from the log; `producer_id` is −1 outside of transactions."""
        value.record_offset = record_offset
        if producer_id < 0:
            self._before_use(key.group_id)
            self._store(key, value)
            return
        self._pending.setdefault(producer_id, _Offsets()).put(key, value)
        self._groups_by_producer.setdefault(producer_id, set()).add(key.group_id)
        self._producers_by_group.setdefault(key.group_id, set()).add(producer_id)

    def replay_removal(self, key: OffsetKey) -> None:
        """Apply a tombstone from the log. It removes pending offsets too, but the transaction stays open until its
        marker.
        """
        self._before_use(key.group_id)
        if self._committed.pop(key) is not None:
            self._metrics.offsets -= 1
            self._forget_topic(key)
        for producer in self._producers_by_group.get(key.group_id, ()):
            self._pending[producer].pop(key)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply the producer's marker from the log."""
        pending = self._pending.pop(producer_id, None)
        if pending is None:
            return
        for group_id in self._groups_by_producer.pop(producer_id):
            producers = self._producers_by_group[group_id]
            producers.discard(producer_id)
            if not producers:
                del self._producers_by_group[group_id]
        if committed:
            self._adopt(pending)

    def _adopt(self, pending: _Offsets) -> None:
        for group_id, topics in pending.groups.items():
            self._before_use(group_id)
            for topic, partitions in topics.items():
                for partition, value in partitions.items():
                    key = OffsetKey(group_id, topic, partition)
                    stored = self._committed.get(key)
                    if stored is None or value.record_offset > stored.record_offset:
                        self._store(key, value)

    def _store(self, key: OffsetKey, value: CommittedOffset) -> None:
        if self._committed.put(key, value) is None:
            self._metrics.offsets += 1
            self._groups_by_topic.setdefault(key.topic, set()).add(key.group_id)

    def _forget_topic(self, key: OffsetKey) -> None:
        if key.topic in self.of_group(key.group_id):
            return
        groups = self._groups_by_topic[key.topic]
        groups.discard(key.group_id)
        if not groups:
            del self._groups_by_topic[key.topic]
