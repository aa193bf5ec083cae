"""The state of one partition of the metadata topic on this broker: position, contents, and user partitions.

State without IO: `reader.py` sends requests and reads. A user partition is *ready* once everything was read that was
committed when it was assigned. The end offset is requested anew for each assignment, since a partition that is read
already may lag behind, and a new leader returns it only once its high watermark is certain (KIP-207).
"""

from collections.abc import Iterable
from typing import Final

from protocol.ids import LeaderEpoch
from storage.tiered.catalog.materialized_metadata import MaterializedMetadata
from storage.tiered.catalog.metadata_folding import MetadataFolding
from storage.tiered.segment_metadata import TopicIdPartition

NO_EPOCH: Final = LeaderEpoch(-1)


class RemoteMetadataPartition:
    """The position in one partition of the metadata topic, and its contents so far.

    `generation` counts restarts of reading; responses to requests of a former one are ignored. `is_open`: the position
    to begin at is known. `must_seek`: the log has no such offset, so its start must be looked up.
    """

    __slots__ = (
        "_ready",
        "_waiting",
        "failures",
        "folding",
        "generation",
        "is_applying",
        "is_open",
        "last_epoch",
        "metadata",
        "must_seek",
        "next_offset",
        "partition",
        "retry_at_s",
        "saved_offset",
        "was_at_end",
    )

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.generation = 0
        self.is_open = False
        self.must_seek = False
        self.is_applying = False
        self.metadata = MaterializedMetadata()
        self.folding = MetadataFolding(self.metadata)
        self.next_offset = 0
        self.last_epoch = NO_EPOCH
        self.saved_offset = -1
        """The end offset of the last snapshot."""
        self.was_at_end = False
        """Whether reading has reached the end of the log that this broker leads, since the last restart."""
        self.failures = 0
        self.retry_at_s = 0.0
        self._ready: dict[TopicIdPartition, None] = {}
        self._waiting: dict[TopicIdPartition, int | None] = {}  # the end offset to reach; None: not looked up yet

    # ---- user partitions

    @property
    def is_needed(self) -> bool:
        """Whether any user partition is ready or waits."""
        return bool(self._ready or self._waiting)

    def assign(self, partition: TopicIdPartition) -> None:
        """Add a user partition; one that is ready stays ready."""
        if partition not in self._ready:
            self._waiting.setdefault(partition, None)

    def unassign(self, partition: TopicIdPartition) -> None:
        self._ready.pop(partition, None)
        self._waiting.pop(partition, None)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return partition in self._ready

    # ---- reading

    @property
    def end_is_sought(self) -> bool:
        """Whether a user partition waits for an end offset that has not been looked up."""
        return any(end is None for end in self._waiting.values())

    @property
    def is_behind(self) -> bool:
        """Whether records are missing that a waiting user partition needs."""
        return any(end is not None and end > self.next_offset for end in self._waiting.values())

    @property
    def has_been_read(self) -> bool:
        """Whether any user partition is ready, or none waits: reading is not urgent."""
        return bool(self._ready) or not self._waiting

    def waiting(self) -> tuple[TopicIdPartition, ...]:
        """Return the user partitions that an end offset looked up now applies to."""
        return tuple(partition for partition, end in self._waiting.items() if end is None)

    def on_end(self, asked: Iterable[TopicIdPartition], end: int) -> None:
        """Set the end offset that was looked up after the partitions were assigned."""
        for partition in asked:
            if partition in self._waiting:
                self._waiting[partition] = end

    def take_ready(self) -> list[TopicIdPartition]:
        """Return the user partitions that have become ready."""
        found = [one for one, end in self._waiting.items() if end is not None and end <= self.next_offset]
        for partition in found:
            del self._waiting[partition]
            self._ready[partition] = None
        return found

    def begin(self, metadata: MaterializedMetadata, next_offset: int, last_epoch: LeaderEpoch) -> None:
        """Restart reading from a position; no user partition is ready until the end is reached again."""
        self.generation += 1
        self.is_open = True
        self.must_seek = False
        self.is_applying = False
        self.metadata = metadata
        self.folding = MetadataFolding(metadata)
        self.next_offset = next_offset
        self.last_epoch = last_epoch
        self.saved_offset = -1
        self.was_at_end = False
        self._waiting = dict.fromkeys((*self._ready, *self._waiting))
        self._ready = {}
