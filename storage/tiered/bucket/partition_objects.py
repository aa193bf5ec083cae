"""What leaders keep beside segments: where a log begins, and, with partition 0, what the topic is.

Blocks, and is called from several threads at once.
"""

import threading
import time
from collections.abc import Callable

from storage.tiered.bucket.listing import topic_directory
from storage.tiered.format.log_start_object import LogStartWriter, log_start_object, read_log_start
from storage.tiered.format.object_keys import ObjectKeys
from storage.tiered.format.topic_object import TopicDescription, TopicWriter, topic_object
from storage.tiered.object_store import ObjectStore
from storage.tiered.segment_metadata import TopicIdPartition

DEFAULT_INTERVAL_MS = 60_000
"""Between two changes of one log start that nothing depends on: what DeleteRecords deleted in the last interval would
come back with a rebuild from the bucket."""


class PartitionObjects:
    """One per broker. Methods raise ObjectStoreError; calling them again is always right."""

    def __init__(
        self,
        store: ObjectStore,
        keys: ObjectKeys,
        *,
        cluster_id: str,
        broker_id: int,
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

    def on_log_start(self, partition: TopicIdPartition, leader_epoch: int, offset: int, *, at_once: bool) -> bool:
        """Keeps it, at once or once the interval is over. False: a later leader has spoken."""
        writer = self._log_start_writer(partition, leader_epoch)
        now_ms = self._now_ms()
        said = writer.write_now(offset, now_ms) if at_once else writer.write(offset, now_ms)
        return said or not writer.is_deposed

    def kept(self, partition: TopicIdPartition) -> int | None:
        """The log start offset that the newest leader kept; None where none did. Raises ValueError, too."""
        found = read_log_start(self._store, self._keys.partition(partition))
        return None if found is None else found.log_start_offset

    def on_topic(self, topic: TopicDescription, leader_epoch: int) -> bool:
        """Keeps what the leader of partition 0 knows of the topic, if it changed. False: a later leader has spoken."""
        partition = TopicIdPartition(topic.topic_id, topic.topic, 0)
        return self._topic_writer(partition, leader_epoch).write(topic)

    def forget(self, partition: TopicIdPartition) -> None:
        """The partition is no more, in remote storage at least."""
        with self._lock:
            self._log_starts.pop(partition, None)
            self._topics.pop(partition, None)
        log_start_object(self._store, self._keys.partition(partition)).remove()
        if partition.partition == 0:
            topic_object(self._store, self._topic_directory(partition)).remove()

    def stop_leading(self, partition: TopicIdPartition) -> None:
        """Another broker leads it; what is in the store stays."""
        with self._lock:
            self._log_starts.pop(partition, None)
            self._topics.pop(partition, None)

    def _log_start_writer(self, partition: TopicIdPartition, leader_epoch: int) -> LogStartWriter:
        with self._lock:
            known = self._log_starts.get(partition)
            if known is None or known[0] != leader_epoch:
                known = leader_epoch, self._new_log_start_writer(partition, leader_epoch)
                self._log_starts[partition] = known
            return known[1]

    def _new_log_start_writer(self, partition: TopicIdPartition, leader_epoch: int) -> LogStartWriter:
        return LogStartWriter(
            self._store,
            self._keys.partition(partition),
            leader_epoch=leader_epoch,
            cluster_id=self._cluster_id,
            broker_id=self._broker_id,
            interval_ms=self._interval_ms,
        )

    def _topic_writer(self, partition: TopicIdPartition, leader_epoch: int) -> TopicWriter:
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
