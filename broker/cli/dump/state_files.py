"""The small files of a log directory: producer snapshots, and text files such as checkpoints and properties."""

from collections.abc import Iterator
from struct import Struct
from typing import BinaryIO

from broker.cli.dump.batches import optional_long
from broker.cli.dump.entries import DumpEntry, DumpError, FieldsLine, TextLine
from protocol.records.compiled import crc32c

SNAPSHOT_VERSION = 1
NONE = -1
MAX_SEQUENCE = 2**31 - 1

_HEADER = Struct(">hI")
_COUNT = Struct(">i")
_PRODUCER = Struct(">qhiqiqiq")


def dump_producer_snapshot(file: BinaryIO, name: str) -> Iterator[DumpEntry]:
    """Yield the producers of a `.snapshot` and a checksum error, if any. Raises DumpError for another file type."""
    head = file.read(_HEADER.size)
    count_bytes = file.read(_COUNT.size)
    if len(head) + len(count_bytes) < _HEADER.size + _COUNT.size:
        raise DumpError(f"{name} is too short for a producer snapshot.")
    version, expected = _HEADER.unpack(head)
    if version != SNAPSHOT_VERSION:
        raise DumpError(f"{name}: producer snapshot version {version} is not supported; use {SNAPSHOT_VERSION}.")
    (count,) = _COUNT.unpack(count_bytes)
    crc = crc32c(count_bytes)
    for index in range(count):
        data = file.read(_PRODUCER.size)
        if len(data) < _PRODUCER.size:
            raise DumpError(f"{name} ends after {index} of {count} producers.")
        crc = crc32c(data, crc)
        yield _producer(data)
    if crc != expected:
        yield TextLine(f"{name} is corrupt: its checksum is {expected}, the checksum of its content {crc}", "error")


class ProducerLine(FieldsLine):
    """A producer. The text prints the open transaction as Java's OptionalLong, the JSON as a number."""

    def text(self) -> str:
        first = self.values["currentTxnFirstOffset"]
        shown = optional_long(first if isinstance(first, int) else None)
        return FieldsLine(self.kind, self.values | {"currentTxnFirstOffset": shown}).text()


def _producer(data: bytes) -> DumpEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first = _PRODUCER.unpack(data)
    values: dict[str, object] = {
        "producerId": producer_id,
        "producerEpoch": epoch,
        "coordinatorEpoch": coordinator_epoch,
        "currentTxnFirstOffset": None if first == NONE else first,
        "lastTimestamp": timestamp,
    }
    if last_sequence != NONE:
        values |= {
            "firstSequence": (last_sequence - delta) & MAX_SEQUENCE,
            "lastSequence": last_sequence,
            "lastOffset": last_offset,
            "offsetDelta": delta,
            "timestamp": timestamp,
        }
    return ProducerLine("producer", values)


def dump_text(file: BinaryIO, name: str) -> Iterator[DumpEntry]:
    """Yield the lines of a text file. Raises DumpError if the file is not UTF-8."""
    for line in file:
        try:
            yield TextLine(line.decode("utf-8").rstrip("\n"), "line")
        except UnicodeDecodeError as error:
            raise DumpError(f"{name} is not text.") from error
