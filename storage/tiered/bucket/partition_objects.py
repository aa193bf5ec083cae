"""Objects that leaders keep beside segments: log start offsets, and with partition 0 the topic description.

Everything blocks; methods are called from several threads at once.
"""

import threading
import time
from collections.abc import Callable

from protocol.ids import BrokerId, LeaderEpoch, Offset
from storage.tiered.bucket.listing import topic_directory
from storage.tiered.format.log_start_object import (
    LogStartWriter,
    has_later_leader,
    log_start_object,
    read_log_start,
)
from storage.tiered.format.object_keys import ObjectKeys
from storage.tiered.format.topic_object import TopicDescription, TopicWriter, topic_object
from storage.tiered.object_store import ObjectStore
from storage.tiered.segment_metadata import TopicIdPartition

DEFAULT_INTERVAL_MS = 60_000
"""Interval between writes of one log start offset that no deletion depends on. A rebuild from the bucket restores
records that DeleteRecords deleted during the last interval."""


class PartitionObjects:
    """Log start and topic objects of all partitions that this broker leads. Methods raise ObjectStoreError and are
    idempotent."""

    def __init__(
        self,
        store: ObjectStore,
        keys: ObjectKeys,
        *,
        cluster_id: str,
        broker_id: BrokerId,
        interval_ms: int = DEFAULT_INTERVAL_MS,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._store = store
        self._keys = keys
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._interval_ms = interval_ms
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._log_starts: dict[TopicIdPartition, tuple[int, LogStartWriter]] = {}
        self._topics: dict[TopicIdPartition, tuple[int, TopicWriter]] = {}

    def on_log_start(
        self, partition: TopicIdPartition, leader_epoch: LeaderEpoch, offset: Offset, *, at_once: bool
    ) -> bool:
        """Store the log start offset, immediately or after the interval. Return False if a later leader wrote one."""
        writer = self._log_start_writer(partition, leader_epoch)
        now_ms = self._now_ms()
        said = writer.write_now(offset, now_ms) if at_once else writer.write(offset, now_ms)
        return said or not writer.is_deposed

    def kept(self, partition: TopicIdPartition) -> int | None:
        """Return the log start offset of the newest leader, None if none was stored. May also raise ValueError."""
        found = read_log_start(self._store, self._keys.partition(partition))
        return None if found is None else found.log_start_offset

    def is_superseded(self, partition: TopicIdPartition, leader_epoch: LeaderEpoch) -> bool:
        """Whether a leader of a later epoch has claimed the partition by now."""
        return has_later_leader(log_start_object(self._store, self._keys.partition(partition)), leader_epoch)

    def on_topic(self, topic: TopicDescription, leader_epoch: LeaderEpoch) -> bool:
        """Store the topic description if it changed. Return False if a later leader wrote one."""
        partition = TopicIdPartition(topic.topic_id, topic.topic, 0)
        return self._topic_writer(partition, leader_epoch).write(topic)

    def forget(self, partition: TopicIdPartition) -> None:
        """Remove the objects of a partition that was deleted from remote storage."""
        with self._lock:
            self._log_starts.pop(partition, None)
            self._topics.pop(partition, None)
        log_start_object(self._store, self._keys.partition(partition)).remove()
        if partition.partition == 0:
            topic_object(self._store, self._topic_directory(partition)).remove()

    def withdraw(self, partition: TopicIdPartition, leader_epoch: LeaderEpoch) -> None:
        """Remove the log start objects of a leader and of its predecessors; those of later leaders stay."""
        with self._lock:
            self._log_starts.pop(partition, None)
        log_start_object(self._store, self._keys.partition(partition)).remove_up_to(leader_epoch)

    def stop_leading(self, partition: TopicIdPartition) -> None:
        """Forget the writers of a partition that another broker leads; the objects stay."""
        with self._lock:
            self._log_starts.pop(partition, None)
            self._topics.pop(partition, None)

    def _log_start_writer(self, partition: TopicIdPartition, leader_epoch: LeaderEpoch) -> LogStartWriter:
        with self._lock:
            known = self._log_starts.get(partition)
            if known is None or known[0] != leader_epoch:
                known = leader_epoch, self._new_log_start_writer(partition, leader_epoch)
                self._log_starts[partition] = known
            return known[1]

    def _new_log_start_writer(self, partition: TopicIdPartition, leader_epoch: LeaderEpoch) -> LogStartWriter:
        return LogStartWriter(
            self._store,
            self._keys.partition(partition),
            leader_epoch=leader_epoch,
            cluster_id=self._cluster_id,
            broker_id=self._broker_id,
            interval_ms=self._interval_ms,
        )

    def _topic_writer(self, partition: TopicIdPartition, leader_epoch: LeaderEpoch) -> TopicWriter:
        with self._lock:
            known = self._topics.get(partition)
            if known is None or known[0] != leader_epoch:
                known = (
                    leader_epoch,
                    TopicWriter(self._store, self._topic_directory(partition), leader_epoch=leader_epoch),
                )
                self._topics[partition] = known
            return known[1]

    def _topic_directory(self, partition: TopicIdPartition) -> str:
        return topic_directory(self._keys, partition.topic, partition.topic_id)
