"""The allocated range of producer ids."""

from collections.abc import Iterator
from typing import NamedTuple

from broker.metadata.image.records import InvalidMetadata, VersionedRecord
from protocol.messages.metadata_records import ProducerIdsRecord


class ProducerIdsImage(NamedTuple):
    """`next_id` is the first id that is not allocated; 0 before any allocation."""

    next_id: int = 0

    def write(self) -> Iterator[VersionedRecord]:
        if self.next_id > 0:
            yield VersionedRecord(ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=self.next_id), 0)


class ProducerIdsDelta:
    """The new `next_id` after some records."""

    def __init__(self, image: ProducerIdsImage) -> None:
        self.next_id = image.next_id

    def replay(self, record: ProducerIdsRecord) -> None:
        """Apply an allocation. Raises InvalidMetadata if it would repeat ids."""
        if record.next_producer_id <= self.next_id:
            raise InvalidMetadata(f"the next producer id goes back from {self.next_id} to {record.next_producer_id}")
        self.next_id = record.next_producer_id

    def apply(self) -> ProducerIdsImage:
        return ProducerIdsImage(self.next_id)
