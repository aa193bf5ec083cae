"""Records of `__remote_log_metadata` as lines, as Kafka's RemoteLogMetadataFormatter prints them (KIP-405)."""

from typing import Final

from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.remote_metadata_text import event_text
from protocol.records.batch import BatchHeader
from protocol.records.reader import FullRecord
from storage.directories.checkpoints import TopicPartition
from storage.tiered.catalog.metadata_records import UndecodableEvent, decode_event

FORMATTERS: Final = ("RemoteLogMetadataSerde$RemoteLogMetadataFormatter", "RemoteLogMetadataFormatter")
"""The class as Kafka has it, and as KIP-405 calls it."""


class RemoteMetadataWriter:
    """Implements RecordWriter."""

    def line(self, partition: TopicPartition, header: BatchHeader, record: FullRecord) -> bytes:
        """Raises CommandFailed for a record that is none of these."""
        try:
            shown = event_text(decode_event(record.value))
        except UndecodableEvent as error:
            raise CommandFailed(f"the record at offset {record.offset} of {partition}: {error}.") from error
        return f"partition: {partition.partition}, offset: {record.offset}, value: {shown}\n".encode()
