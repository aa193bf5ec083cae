"""The small text files of a log directory: offset checkpoints, leader epochs, topic ids. Formats of Apache Kafka.

A checkpoint is UTF-8 lines: version `0`, the number of entries, the entries; an empty file has none. Every file is
replaced durably, except the topic id of a new log. Callers decide which files are expendable.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from protocol.ids import LeaderEpoch
from protocol.primitives import ZERO_UUID, Uuid, uuid_from_text, uuid_to_text
from storage.errors import CorruptCheckpoint
from storage.files import FileSystem, join, read_file, replace_file, write_file

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"

_VERSION = 0


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LeaderEpochEntry(NamedTuple):
    """The first offset of a leader epoch, which may have no batch yet."""

    epoch: LeaderEpoch
    start_offset: int


def read_offsets(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Read an offset checkpoint; {} if the file is absent. Raises CorruptCheckpoint."""
    offsets = {}
    for line in _read_entries(fs, path):
        topic, partition, offset = _fields(path, line, 3)
        offsets[TopicPartition(topic, _integer(path, partition))] = _integer(path, offset)
    return offsets


def write_offsets(fs: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    _write_entries(fs, path, [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def read_epochs(fs: FileSystem, path: str) -> list[LeaderEpochEntry]:
    """Read a leader-epoch checkpoint; [] if the file is absent. Raises CorruptCheckpoint."""
    entries = (_fields(path, line, 2) for line in _read_entries(fs, path))
    return [LeaderEpochEntry(LeaderEpoch(_integer(path, epoch)), _integer(path, offset)) for epoch, offset in entries]


def write_epochs(fs: FileSystem, path: str, epochs: Iterable[LeaderEpochEntry]) -> None:
    _write_entries(fs, path, [f"{epoch} {offset}" for epoch, offset in epochs])


def read_topic_id(fs: FileSystem, directory: str) -> Uuid | None:
    """Return the topic id in partition.metadata; None without that file. Raises CorruptCheckpoint."""
    path = join(directory, PARTITION_METADATA_FILE)
    if not fs.exists(path):
        return None
    fields = dict(_metadata_fields(path, read_file(fs, path)))
    if set(fields) != {"version", "topic_id"} or _integer(path, fields["version"]) < 0:
        raise CorruptCheckpoint(path, "expected the lines version and topic_id")
    try:
        topic_id = uuid_from_text(fields["topic_id"])
    except ValueError as error:
        raise CorruptCheckpoint(path, str(error)) from error
    if topic_id == ZERO_UUID:
        raise CorruptCheckpoint(path, "the topic id is zero")
    return topic_id


def write_topic_id(fs: FileSystem, directory: str, topic_id: Uuid, *, sync: bool) -> None:
    """Write partition.metadata durably, or without an fsync: a crash may then leave a torn file, which is detected."""
    path = join(directory, PARTITION_METADATA_FILE)
    content = f"version: {_VERSION}\ntopic_id: {uuid_to_text(topic_id)}".encode()
    if sync:
        replace_file(fs, path, content)
    else:
        write_file(fs, path, content, sync=False)


def _metadata_fields(path: str, data: bytes) -> Iterator[tuple[str, str]]:
    for line in _decode(path, data).splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            raise CorruptCheckpoint(path, f"malformed line {line!r}")
        yield name.strip(), value.strip()


def _read_entries(fs: FileSystem, path: str) -> list[str]:
    if not fs.exists(path):
        return []
    lines = _decode(path, read_file(fs, path)).splitlines()
    if not lines:
        return []
    if _integer(path, lines[0]) != _VERSION:
        raise CorruptCheckpoint(path, f"unknown version {lines[0]}")
    entries = [line for line in lines[2:] if line.strip()]
    if len(lines) < 2 or _integer(path, lines[1]) != len(entries):
        raise CorruptCheckpoint(path, "the number of entries differs from the second line")
    return entries


def _write_entries(fs: FileSystem, path: str, entries: Sequence[str]) -> None:
    lines = [str(_VERSION), str(len(entries)), *entries]
    replace_file(fs, path, "".join(f"{line}\n" for line in lines).encode())


def _decode(path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(path, str(error)) from error


def _fields(path: str, line: str, count: int) -> list[str]:
    fields = line.split()
    if len(fields) != count:
        raise CorruptCheckpoint(path, f"malformed line {line!r}")
    return fields


def _integer(path: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise CorruptCheckpoint(path, f"not a number: {text!r}") from error
