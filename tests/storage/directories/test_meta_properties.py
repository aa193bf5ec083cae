"""meta.properties, the clean-shutdown marker, and the formatting of directories."""

import errno
from random import Random

import pytest

from protocol.primitives import Uuid, uuid_from_text, uuid_to_text
from storage.directories.clean_shutdown import CLEAN_SHUTDOWN_FILE, take_marker, write_marker
from storage.directories.formatting import (
    BOOTSTRAP_CHECKPOINT_FILE,
    AlreadyFormatted,
    Formatted,
    format_directories,
    is_cluster_id,
    is_formatted,
    random_id,
)
from storage.directories.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    MetaPropertiesMismatch,
    check_together,
    read_meta_properties,
    write_meta_properties,
)
from storage.errors import CorruptCheckpoint
from storage.files import join, read_file, write_file
from tests.support.fakes.memory_files import MemoryFileSystem

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
FIRST_ID = uuid_from_text("yD1jdMJdSCqQZBmcs2nXVA")
SECOND_ID = uuid_from_text("Kq4cH4rSRFqeeSJa2Ya1Zw")


def disk(*directories: str) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    for directory in directories:
        fs.make_directory(directory)
    return fs


def with_file(content: str) -> MemoryFileSystem:
    fs = disk("d")
    write_file(fs, join("d", META_PROPERTIES_FILE), content.encode("latin-1"), sync=False)
    return fs


def test_meta_properties_round_trip() -> None:
    fs = disk("d")
    meta = MetaProperties(CLUSTER, 7, FIRST_ID)
    write_meta_properties(fs, "d", meta)
    assert read_meta_properties(fs, "d") == meta


def test_unformatted_directory_has_no_meta_properties() -> None:
    assert read_meta_properties(disk("d"), "d") is None


def test_file_of_apache_kafka_is_read() -> None:
    content = (
        "#\n#Fri Nov 21 08:00:00 UTC 2025\n"
        f"cluster.id={CLUSTER}\ndirectory.id={uuid_to_text(FIRST_ID)}\nnode.id=1\nversion=1\n"
    )
    assert read_meta_properties(with_file(content), "d") == MetaProperties(CLUSTER, 1, FIRST_ID)


def test_version_0_file_has_only_a_broker_id() -> None:
    assert read_meta_properties(with_file("broker.id=3\n"), "d") == MetaProperties(None, 3, None, version=0)
    assert read_meta_properties(with_file("version=0\ncluster.id=c\n"), "d") == MetaProperties("c", None, None, 0)


def test_separators_blanks_and_escapes_of_java_properties() -> None:
    content = "  ! remark\n version : 1\nnode.id   5\ncluster.id = a\\:b\\= \\n\n\n"
    assert read_meta_properties(with_file(content), "d") == MetaProperties("a:b= \n", 5)


def test_name_with_separators_round_trips() -> None:
    fs = disk("d")
    meta = MetaProperties("my cluster: #1 = \\o/", 1, FIRST_ID)
    write_meta_properties(fs, "d", meta)
    assert read_meta_properties(fs, "d") == meta


@pytest.mark.parametrize(
    "content",
    [
        "version=2\nnode.id=1\ncluster.id=c\n",
        "version=x\n",
        "version=1\nnode.id=1\n",
        "version=1\ncluster.id=c\n",
        "version=1\ncluster.id=c\nnode.id=one\n",
        "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=short\n",
        "version=1\\",
    ],
)
def test_malformed_meta_properties_raise_an_error_with_the_path(content: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=r"d/meta\.properties"):
        read_meta_properties(with_file(content), "d")


@pytest.mark.parametrize(
    ("second", "blamed"),
    [
        (MetaProperties("other", 1, SECOND_ID), "cluster.id"),
        (MetaProperties(CLUSTER, 2, SECOND_ID), "node.id"),
        (MetaProperties(CLUSTER, 1, FIRST_ID), "directory.id"),
    ],
)
def test_directories_of_different_nodes_are_refused(second: MetaProperties, blamed: str) -> None:
    with pytest.raises(MetaPropertiesMismatch, match=f"/b.*{blamed}|{blamed}.*"):
        check_together({"/a": MetaProperties(CLUSTER, 1, FIRST_ID), "/b": second})


def test_directories_of_one_node_are_accepted() -> None:
    check_together({"/a": MetaProperties(CLUSTER, 1, FIRST_ID), "/b": MetaProperties(None, None, None, 0)})
    with pytest.raises(MetaPropertiesMismatch, match=r"/a belongs to node\.id 1, not 9"):
        check_together({"/a": MetaProperties(CLUSTER, 1, FIRST_ID)}, node_id=9)


# -- marker ------------------------------------------------------------------------------------------------------------


def test_clean_shutdown_marker_is_taken_once() -> None:
    fs = disk("d")
    assert take_marker(fs, "d") is None
    write_marker(fs, "d", broker_epoch=42)
    assert read_file(fs, join("d", CLEAN_SHUTDOWN_FILE)) == b'{"version":0,"brokerEpoch":42}'
    assert take_marker(fs, "d") == 42
    fs.crash(Random(1))
    assert take_marker(fs, "d") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version":0}', b'{"brokerEpoch":"x"}'])
def test_empty_marker_means_clean_shutdown_with_unknown_epoch(content: bytes) -> None:
    fs = disk("d")
    write_file(fs, join("d", CLEAN_SHUTDOWN_FILE), content, sync=True)
    assert take_marker(fs, "d") == -1


# -- formatting --------------------------------------------------------------------------------------------------------


def format_two(fs: MemoryFileSystem, *, ignore_formatted: bool = False, node_id: int = 1) -> Formatted:
    ids = iter([FIRST_ID, SECOND_ID])
    return format_directories(
        fs,
        ["a", "b"],
        "a",
        cluster_id=CLUSTER,
        node_id=node_id,
        initial_files={"__cluster_metadata-0/0-0.checkpoint": b"voters"},
        common_files={BOOTSTRAP_CHECKPOINT_FILE: b"snapshot"},
        ignore_formatted=ignore_formatted,
        new_id=lambda: next(ids),
    )


def test_formatting_gives_each_directory_its_identity() -> None:
    fs = disk()
    assert format_two(fs) == Formatted(["a", "b"], [])
    assert read_meta_properties(fs, "a") == MetaProperties(CLUSTER, 1, FIRST_ID)
    assert read_meta_properties(fs, "b") == MetaProperties(CLUSTER, 1, SECOND_ID)
    assert read_file(fs, "a/bootstrap.checkpoint") == b"snapshot"
    assert read_file(fs, "a/__cluster_metadata-0/0-0.checkpoint") == b"voters"
    assert read_file(fs, "b/bootstrap.checkpoint") == b"snapshot"
    assert not fs.exists("b/__cluster_metadata-0")
    assert is_formatted(fs, "b")


def test_formatting_survives_a_power_cut() -> None:
    fs = disk()
    format_two(fs)
    fs.crash(Random(3))
    assert read_meta_properties(fs, "b") == MetaProperties(CLUSTER, 1, SECOND_ID)
    assert read_file(fs, "a/__cluster_metadata-0/0-0.checkpoint") == b"voters"


def test_formatted_directories_are_not_formatted_again() -> None:
    fs = disk()
    format_two(fs)
    with pytest.raises(AlreadyFormatted, match="--ignore-formatted"):
        format_two(fs)
    assert format_two(fs, ignore_formatted=True) == Formatted([], ["a", "b"])
    with pytest.raises(MetaPropertiesMismatch):
        format_two(fs, ignore_formatted=True, node_id=2)


def test_interrupted_format_can_be_repeated() -> None:
    fs = disk()
    fs.fail("sync", errno.ENOSPC, path_part="a/meta.properties")
    with pytest.raises(OSError, match="No space left"):
        format_two(fs)
    assert format_two(fs).new == ["a", "b"]


def test_random_ids_are_distinct_and_never_start_with_a_dash() -> None:
    ids = {random_id() for _ in range(500)}
    assert len(ids) == 500
    assert not any(uuid_to_text(id).startswith("-") for id in ids)
    assert is_cluster_id(uuid_to_text(Uuid(bytes(16))))
    assert not is_cluster_id("my-cluster")
