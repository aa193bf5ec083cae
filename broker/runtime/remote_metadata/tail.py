"""How far one partition of the metadata topic was read here, what it says, and who waits for its end.

State and its changes, without IO: `remote_metadata_reader.py` asks and reads. A user partition is *ready* once
everything was read that was committed when it was assigned. That end is asked for anew for each of them, since a
partition that is read already may lag behind, and a leader tells it only when it is sure of it (KIP-207).
"""

from collections.abc import Iterable
from typing import Final

from storage.tiered.catalog.materialized_metadata import MaterializedMetadata
from storage.tiered.catalog.metadata_folding import MetadataFolding
from storage.tiered.segment_metadata import TopicIdPartition

NO_EPOCH: Final = -1


class MetadataTail:
    """`life` counts beginnings: what was asked in a former one is void.

    `is_open`: it is known where to begin. `must_seek`: the log has no such offset, so that its start must be asked for.
    """

    __slots__ = (
        "_ready",
        "_waiting",
        "failures",
        "folding",
        "is_applying",
        "is_open",
        "last_epoch",
        "life",
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
        self.life = 0
        self.is_open = False
        self.must_seek = False
        self.is_applying = False
        self.metadata = MaterializedMetadata()
        self.folding = MetadataFolding(self.metadata)
        self.next_offset = 0
        self.last_epoch = NO_EPOCH
        self.saved_offset = -1
        """Up to where there is a snapshot."""
        self.was_at_end = False
        """Of the log that this broker leads, since the last beginning."""
        self.failures = 0
        self.retry_at_s = 0.0
        self._ready: dict[TopicIdPartition, None] = {}
        self._waiting: dict[TopicIdPartition, int | None] = {}  # the end to be reached, once it is known

    # ---- who is served

    @property
    def is_needed(self) -> bool:
        """There are user partitions that wait or are ready."""
        return bool(self._ready or self._waiting)

    def assign(self, partition: TopicIdPartition) -> None:
        """Serve a user partition; one that is served already is not disturbed."""
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
        """Somebody waits for an end that nobody has asked for yet."""
        return any(end is None for end in self._waiting.values())

    @property
    def is_behind(self) -> bool:
        """There is more to be read before all that wait are ready."""
        return any(end is not None and end > self.next_offset for end in self._waiting.values())

    @property
    def has_been_read(self) -> bool:
        """Somebody is ready, or nobody is there to be: nothing is to be hurried."""
        return bool(self._ready) or not self._waiting

    def waiting(self) -> tuple[TopicIdPartition, ...]:
        """Those for whom an end that is asked for now will do."""
        return tuple(partition for partition, end in self._waiting.items() if end is None)

    def on_end(self, asked: Iterable[TopicIdPartition], end: int) -> None:
        """The log ended there, after they were assigned."""
        for partition in asked:
            if partition in self._waiting:
                self._waiting[partition] = end

    def take_ready(self) -> list[TopicIdPartition]:
        """Those that have become ready."""
        found = [one for one, end in self._waiting.items() if end is not None and end <= self.next_offset]
        for partition in found:
            del self._waiting[partition]
            self._ready[partition] = None
        return found

    def begin(self, metadata: MaterializedMetadata, next_offset: int, last_epoch: int) -> None:
        """Read on from there; nobody is ready any more."""
        self.life += 1
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
