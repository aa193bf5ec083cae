"""The records of deleted topics, by the partition's name.

Brokers that have not learned of the deletion still serve the old partition to requests that name no topic id, as in
Kafka before Produce version 13.
"""

from collections.abc import Sequence

from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.history import History
from tests.simulation.watched_disk import LoggedBatch


class DeletedRecords:
    """The batches that were written to deleted partitions, and those that were acknowledged."""

    def __init__(self) -> None:
        self._written: dict[ReplicaName, set[tuple[int, int]]] = {}
        self._acknowledged: dict[ReplicaName, set[int]] = {}
        self._present: dict[ReplicaName, set[int]] = {}

    def concerns(self, name: ReplicaName) -> bool:
        """Whether a topic of the name was deleted."""
        return name in self._written

    def on_deleted(self, name: ReplicaName, history: History) -> None:
        """Take over the records of a partition."""
        written = ((offset, batch.crc) for (_, offset), batch in history.written.items())
        self._written.setdefault(name, set()).update(written)
        self._acknowledged.setdefault(name, set()).update(self._present.pop(name, ()))

    def note_written(self, name: ReplicaName, batches: Sequence[LoggedBatch]) -> None:
        """Record batches that a broker writes to the deleted partition."""
        self._written.setdefault(name, set()).update((batch.base_offset, batch.crc) for batch in batches)

    def has(self, name: ReplicaName, offset: int, crc: int) -> bool:
        return (offset, crc) in self._written.get(name, ())

    def note_acknowledged(self, name: ReplicaName, crc: int) -> None:
        """Record an acknowledgement by a replica of the deleted partition."""
        self._acknowledged.setdefault(name, set()).add(crc)

    def note_acknowledged_now(self, name: ReplicaName, crc: int) -> None:
        """Record an acknowledgement by a replica of the present partition."""
        self._present.setdefault(name, set()).add(crc)

    def is_acknowledged(self, name: ReplicaName, crc: int) -> bool:
        """Whether a batch of the deleted partition was acknowledged, so that no producer sends it again."""
        return crc in self._acknowledged.get(name, ())
