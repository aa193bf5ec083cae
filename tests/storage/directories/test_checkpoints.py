"""The small text files of a log directory, byte for byte as Kafka writes them."""

import pytest

from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid
from storage.directories.checkpoints import LeaderEpochEntry as Start
from storage.directories.checkpoints import (
    TopicPartition,
    read_epochs,
    read_offsets,
    read_topic_id,
    write_epochs,
    write_offsets,
    write_topic_id,
)
from storage.errors import CorruptCheckpoint
from storage.files import read_file, write_file
from tests.support.fakes.memory_files import MemoryFileSystem

TOPIC_ID = Uuid(bytes(range(16)))


def holding(content: bytes, path: str = "f") -> MemoryFileSystem:
    fs = MemoryFileSystem()
    write_file(fs, path, content, sync=False)
    return fs


def test_offset_checkpoints_have_a_line_per_partition() -> None:
    fs = MemoryFileSystem()
    offsets = {TopicPartition("b.c-d", 1): 5, TopicPartition("a", 0): 2**40}
    write_offsets(fs, "f", offsets)
    assert read_file(fs, "f") == b"0\n2\nb.c-d 1 5\na 0 1099511627776\n"
    assert read_offsets(fs, "f") == offsets


def test_epoch_checkpoints_have_a_line_per_epoch() -> None:
    fs = MemoryFileSystem()
    write_epochs(fs, "f", [Start(LeaderEpoch(0), 0), Start(LeaderEpoch(3), 17)])
    assert read_file(fs, "f") == b"0\n2\n0 0\n3 17\n"
    assert read_epochs(fs, "f") == [(0, 0), (3, 17)]


def test_absent_and_empty_checkpoints_have_no_entries() -> None:
    assert read_offsets(MemoryFileSystem(), "f") == {}
    assert read_epochs(holding(b""), "f") == []


@pytest.mark.parametrize(
    "content",
    [
        b"1\n0\n",
        b"0\n",
        b"0\n2\n1 1\n",
        b"0\n1\n1 1\n2 2\n",
        b"0\n1\n1\n",
        b"0\n1\na b\n",
        b"x",
        b"0\n1\n1 1 1\n",
        b"\xff\n",
    ],
)
def test_corrupt_checkpoints_are_refused(content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        read_epochs(holding(content), "f")


def test_partition_metadata_has_two_lines_and_no_newline_at_its_end() -> None:
    fs = MemoryFileSystem()
    fs.make_directory("t-0")
    assert read_topic_id(fs, "t-0") is None
    write_topic_id(fs, "t-0", TOPIC_ID, sync=True)
    assert read_file(fs, "t-0/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert read_topic_id(fs, "t-0") == TOPIC_ID


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version: 0",
        b"version: -1\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: short",
        b"version 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
    ],
)
def test_corrupt_partition_metadata_is_refused(content: bytes) -> None:
    fs = MemoryFileSystem()
    fs.make_directory("t-0")
    write_file(fs, "t-0/partition.metadata", content, sync=False)
    with pytest.raises(CorruptCheckpoint):
        read_topic_id(fs, "t-0")


def test_later_versions_of_partition_metadata_are_read() -> None:
    fs = MemoryFileSystem()
    fs.make_directory("t-0")
    write_file(fs, "t-0/partition.metadata", b"version: 7\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n", sync=False)
    assert read_topic_id(fs, "t-0") == TOPIC_ID
