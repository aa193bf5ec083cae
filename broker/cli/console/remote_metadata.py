"""Records of `__remote_log_metadata` as lines, in the format of Kafka's RemoteLogMetadataFormatter (KIP-405)."""

from typing import Final

from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.remote_metadata_text import event_text
from protocol.records.batch import BatchHeader
from protocol.records.reader import FullRecord
from storage.directories.checkpoints import TopicPartition
from storage.tiered.catalog.metadata_records import UndecodableEvent, decode_event

FORMATTERS: Final = ("RemoteLogMetadataSerde$RemoteLogMetadataFormatter", "RemoteLogMetadataFormatter")
"""Class names in Kafka and in KIP-405."""


class RemoteMetadataWriter:
    """Implements RecordWriter."""

    def line(self, partition: TopicPartition, header: BatchHeader, record: FullRecord) -> bytes:
        """Return the line of a record. Raises CommandFailed if the record is not a remote segment event."""
        try:
            shown = event_text(decode_event(record.value))
        except UndecodableEvent as error:
            raise CommandFailed(f"the record at offset {record.offset} of {partition}: {error}.") from error
        return f"partition: {partition.partition}, offset: {record.offset}, value: {shown}\n".encode()
