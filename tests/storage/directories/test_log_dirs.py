"""The log directories of a node: locks, identity, loading, creating and deleting logs, and failing disks."""

import errno
from collections.abc import Sequence
from random import Random

import pytest

from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid, uuid_from_text
from protocol.records.builder import Record, build_batch
from storage.config import LogConfig
from storage.directories.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    TopicPartition,
    read_offsets,
    write_offsets,
)
from storage.directories.clean_shutdown import CLEAN_SHUTDOWN_FILE
from storage.directories.log_dir import LogDir, LogDirLocked, NoLogDir, NotALog, lock_directory
from storage.directories.log_dirs import LogDirs
from storage.directories.meta_properties import MetaProperties, MetaPropertiesMismatch, write_meta_properties
from storage.errors import CorruptCheckpoint, LogDirFailure
from storage.files import OsFileSystem, join, write_file
from storage.log import Log
from tests.support.fakes.memory_files import MemoryFileSystem

NOW_MS = 1_700_000_000_000
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = uuid_from_text("yD1jdMJdSCqQZBmcs2nXVA")
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


class Node:
    """A node's directories through starts, crashes and stops."""

    def __init__(self, *paths: str) -> None:
        self.fs = MemoryFileSystem()
        self.paths = paths or ("a",)
        self.lost: list[tuple[str, list[str]]] = []
        self.ids = iter(Uuid(bytes([number]) * 16) for number in range(1, 100))
        self.dirs = self.start()

    def start(self, **loading: object) -> LogDirs:
        self.dirs = LogDirs.open(self.fs, self.paths, self.on_failure)
        self.dirs.adopt(CLUSTER, 1, lambda: next(self.ids))
        self.load()
        return self.dirs

    def load(self, threads: int = 1) -> None:
        self.dirs.load(lambda topic: LogConfig(), now_ms=NOW_MS, threads_per_directory=threads)

    def on_failure(self, directory: LogDir, logs: Sequence[Log]) -> None:
        self.lost.append((directory.path, [log.name for log in logs]))

    def create(self, partition: TopicPartition) -> Log:
        return self.dirs.create(partition, LogConfig(), now_ms=NOW_MS, topic_id=TOPIC_ID)

    def stop(self, broker_epoch: int = -1) -> None:
        self.dirs.close(broker_epoch=broker_epoch)
        self.dirs.unlock()

    def crash(self) -> None:
        self.fs.faults.clear()
        self.fs.crash(Random(0))


def append(log: Log, count: int = 1) -> None:
    for _ in range(count):
        log.append_as_leader(bytearray(build_batch([Record(NOW_MS, None, b"v")])), LeaderEpoch(0), now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)


# -- locks and identity ------------------------------------------------------------------------------------------------


def test_second_node_on_a_locked_directory_is_refused_with_one_sentence() -> None:
    node = Node("a", "b")
    with pytest.raises(LogDirLocked, match="a is in use by another process"):
        LogDirs.open(node.fs, ["a", "b"], node.on_failure)
    node.stop()
    LogDirs.open(node.fs, ["a", "b"], node.on_failure)


def test_failed_start_releases_its_locks() -> None:
    node = Node("b")
    with pytest.raises(LogDirLocked):
        LogDirs.open(node.fs, ["a", "b"], node.on_failure)
    lock_directory(node.fs, "a").release()


def test_lock_holds_between_processes(tmp_path: object) -> None:
    fs = OsFileSystem()
    path = f"{tmp_path}/data"
    lock = lock_directory(fs, path)
    with pytest.raises(LogDirLocked):
        lock_directory(fs, path)
    lock.release()
    lock_directory(fs, path).release()


def unformatted(dirs: LogDirs) -> list[str]:
    return [directory.path for directory in dirs.online if directory.meta is None]


def test_new_directory_gets_a_persistent_id() -> None:
    node = Node("a", "b")
    ids = [directory.id for directory in node.dirs.directories]
    assert len(set(ids)) == 2
    node.stop()
    again = LogDirs.open(node.fs, ["a", "b"], node.on_failure)
    assert unformatted(again) == []
    assert again.identity is not None
    assert (again.identity.cluster_id, again.identity.node_id) == (CLUSTER, 1)
    assert [directory.id for directory in again.directories] == ids


def test_unformatted_directory_is_reported() -> None:
    dirs = LogDirs.open(MemoryFileSystem(), ["a/"], lambda directory, logs: None)
    assert unformatted(dirs) == ["a"]
    assert dirs.identity is None


def test_directory_of_another_cluster_is_refused_before_anything_is_written() -> None:
    fs = MemoryFileSystem()
    fs.make_directory("b")
    write_meta_properties(fs, "b", MetaProperties("other", 1))
    dirs = LogDirs.open(fs, ["a", "b"], lambda directory, logs: None)
    with pytest.raises(MetaPropertiesMismatch, match=r"b belongs to cluster\.id other"):
        dirs.adopt(CLUSTER, 1, lambda: TOPIC_ID)
    assert unformatted(dirs) == ["a"]


def test_unreadable_meta_properties_prevent_the_start() -> None:
    fs = MemoryFileSystem()
    fs.make_directory("a")
    write_file(fs, "a/meta.properties", b"version=9", sync=True)
    with pytest.raises(CorruptCheckpoint):
        LogDirs.open(fs, ["a"], lambda directory, logs: None)


# -- creation and deletion of logs -------------------------------------------------------------------------------------


def test_logs_are_found_again_after_a_clean_stop() -> None:
    node = Node("a", "b")
    append(node.create(T0), 3)
    append(node.create(T1), 2)
    node.stop(broker_epoch=17)
    assert node.fs.exists(join("a", CLEAN_SHUTDOWN_FILE))

    dirs = node.start()
    assert not node.fs.exists(join("a", CLEAN_SHUTDOWN_FILE))
    assert dirs.previous_broker_epoch == 17
    assert sorted((log.name, log.log_end_offset, log.high_watermark) for log in dirs) == [("t-0", 3, 3), ("t-1", 2, 2)]
    log = dirs.get(T0)
    assert log is not None
    assert log.topic_id == TOPIC_ID
    assert log.recovery.scanned_bytes == 0


def test_after_a_crash_logs_are_read_again_from_their_recovery_points() -> None:
    node = Node()
    log = node.create(T0)
    append(log, 3)
    node.dirs.checkpoints.make_durable(log)
    assert read_offsets(node.fs, join("a", RECOVERY_POINT_FILE)) == {T0: 3}
    append(log)
    node.crash()
    dirs = node.start()
    assert dirs.previous_broker_epoch == -1
    (recovered,) = dirs
    assert recovered.log_end_offset >= 3
    assert recovered.recovery.scanned_bytes > 0


def test_crash_during_loading_is_an_unclean_shutdown() -> None:
    node = Node()
    append(node.create(T0))
    node.stop()
    node.start()
    node.crash()
    node.start()
    assert node.dirs.previous_broker_epoch == -1
    assert [log.log_end_offset for log in node.dirs] == [1]


@pytest.mark.parametrize("name", [RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE])
def test_corrupt_checkpoint_lengthens_the_recovery(name: str) -> None:
    node = Node()
    append(node.create(T0), 2)
    node.stop()
    write_file(node.fs, join("a", name), b"garbage", sync=True)
    node.start()
    assert [log.log_end_offset for log in node.dirs] == [2]


def test_log_start_is_checkpointed_only_if_segments_do_not_imply_it() -> None:
    node = Node()
    first, second = node.create(T0), node.create(T1)
    append(first, 3)
    append(second, 3)
    first.maybe_increment_log_start_offset(2)
    node.dirs.checkpoints.write_log_starts()
    assert read_offsets(node.fs, join("a", LOG_START_OFFSET_FILE)) == {T0: 2}
    node.stop()
    starts = {log.name: log.log_start_offset for log in node.start()}
    assert starts == {"t-0": 2, "t-1": 0}


def test_unchanged_checkpoints_are_not_rewritten() -> None:
    node = Node()
    append(node.create(T0))
    node.stop()
    node.fs.log.clear()
    node.start()
    node.dirs.checkpoints.write_recovery_points()
    node.dirs.checkpoints.write_high_watermarks()
    assert not any("-checkpoint" in path for operation, path in node.fs.log if operation in ("write", "rename"))
    log = node.dirs.get(T0)
    assert log is not None
    append(log)
    node.dirs.checkpoints.write_high_watermarks()
    assert read_offsets(node.fs, f"a/{HIGH_WATERMARK_FILE}") == {T0: 2}


def test_unreadable_checkpoint_is_rewritten() -> None:
    node = Node()
    append(node.create(T0))
    node.stop()
    write_file(node.fs, f"a/{HIGH_WATERMARK_FILE}", b"nonsense", sync=True)
    node.start()
    assert read_offsets(node.fs, f"a/{HIGH_WATERMARK_FILE}") == {T0: 0}


def test_new_log_is_created_in_the_directory_with_the_fewest_logs() -> None:
    node = Node("a", "b")
    homes = []
    for number in range(4):
        partition = TopicPartition("t", number)
        node.create(partition)
        home = node.dirs.directory_of(partition)
        assert home is not None
        homes.append(home.path)
    assert sorted(homes) == ["a", "a", "b", "b"]
    assert homes[0] != homes[1]


def test_new_log_is_created_in_the_assigned_directory_if_online() -> None:
    node = Node("a", "b")
    wanted = node.dirs.directories[1].id
    for partition in (T0, T1):
        log = node.dirs.create(partition, LogConfig(), now_ms=NOW_MS, directory_id=wanted)
        assert log.directory.startswith("b/")


def test_creating_an_existing_log_returns_it() -> None:
    node = Node()
    assert node.create(T0) is node.create(T0)
    assert len(node.dirs) == 1


def test_deleted_log_is_renamed_and_its_name_is_reusable() -> None:
    node = Node()
    append(node.create(T0), 5)
    node.dirs.checkpoints.write_recovery_points()
    path = node.dirs.delete(T0)
    assert path is not None
    assert path.startswith("a/t-0.")
    assert path.endswith("-delete")
    assert node.dirs.get(T0) is None
    node.dirs.unsynced_removals.sync()
    assert read_offsets(node.fs, join("a", RECOVERY_POINT_FILE)) == {}
    assert node.create(T0).log_end_offset == 0
    assert node.dirs.delete(T1) is None


def test_interrupted_deletion_is_found_at_the_next_start() -> None:
    node = Node()
    node.create(T0)
    path = node.dirs.delete(T0)
    node.stop()
    node.start()
    assert node.dirs.directories[0].stale == [path]
    assert len(node.dirs) == 0


def test_name_of_a_deleted_log_is_truncated_to_the_file_system_limit() -> None:
    node = Node()
    partition = TopicPartition("x" * 249, 100)
    node.create(partition)
    path = node.dirs.delete(partition)
    assert path is not None
    assert len(path.removeprefix("a/")) == 255
    node.stop()
    node.start()
    assert node.dirs.directories[0].stale == [path]


def test_stray_replica_is_renamed_and_kept() -> None:
    node = Node()
    append(node.create(T0))
    node.create(T1)
    aside = node.dirs.set_aside_as_stray(T0)
    assert aside is not None
    assert aside.endswith("-stray")
    assert node.fs.exists(join(aside, "00000000000000000000.log"))
    assert node.dirs.directories[0].kept_aside == [aside]
    node.stop()
    node.start()
    assert [log.name for log in node.dirs] == ["t-1"]
    assert node.dirs.directories[0].kept_aside == [aside]


def test_other_directories_are_left_alone() -> None:
    node = Node()
    for name in ("__cluster_metadata-0", "remote-log-index-cache", "lost+found", "t-0.0123456789abcdef-future"):
        node.fs.make_directory(join("a", name))
    node.stop()
    node.start()
    assert len(node.dirs) == 0


def test_invalid_log_directory_name_prevents_the_start_with_one_sentence() -> None:
    node = Node()
    node.fs.make_directory("a/holidays")
    node.stop()
    with pytest.raises(NotALog, match="a/holidays is not the directory of a topic partition"):
        node.start()


@pytest.fixture
def twice() -> Node:
    """Return a node with t-0 in both directories, 2 records in a and 3 in b; b was offline when a got its log."""
    node = Node("a", "b")
    node.create(T1)
    append(node.create(T0), 3)
    assert node.dirs.get(T0).directory == "b/t-0"  # type: ignore[union-attr]
    node.stop()
    node.fs.rename("b/t-0", "b/lost+found")
    node.start()
    node.dirs.prefer(T0, node.dirs.directories[0])
    append(node.create(T0), 2)
    node.stop()
    node.fs.rename("b/lost+found", "b/t-0")
    write_offsets(node.fs, join("b", HIGH_WATERMARK_FILE), {T0: 3})  # the state of that disk when it failed
    node.start()
    return node


def test_contested_logs_are_not_opened_before_settle(twice: Node) -> None:
    assert [log.name for log in twice.dirs] == ["t-1"]
    found = twice.dirs.contested[T0]
    assert [(log.path, log.topic_id) for log in found] == [("a/t-0", TOPIC_ID), ("b/t-0", TOPIC_ID)]
    assert twice.dirs.directory_of(T0) is None


@pytest.mark.parametrize(("chosen", "end"), [(0, 2), (1, 3)])
def test_chosen_log_is_opened_and_the_other_becomes_stray(twice: Node, chosen: int, end: int) -> None:
    twice.dirs.settle(T0, twice.dirs.contested[T0][chosen], LogConfig(), now_ms=NOW_MS)
    log = twice.dirs.get(T0)
    assert log is not None
    assert (log.log_end_offset, log.high_watermark) == (end, end), "the checkpointed offsets are used"
    assert twice.dirs.directory_of(T0) is twice.dirs.directories[chosen]
    (aside,) = twice.dirs.directories[1 - chosen].kept_aside
    assert twice.fs.exists(join(aside, "00000000000000000000.log"))
    assert not twice.dirs.contested
    twice.stop()
    twice.start()
    assert not twice.dirs.contested
    assert {log.name for log in twice.dirs} == {"t-0", "t-1"}


def test_unopened_logs_hide_the_former_broker_epoch(twice: Node) -> None:
    """A loss of flushed records in them is found after the registration."""
    twice.stop(broker_epoch=17)
    twice.start()
    assert [directory.previous_epoch for directory in twice.dirs.directories] == [17, 17]
    assert twice.dirs.previous_broker_epoch == -1
    twice.dirs.settle(T0, twice.dirs.contested[T0][0], LogConfig(), now_ms=NOW_MS)
    twice.stop(broker_epoch=18)
    assert twice.start().previous_broker_epoch == 18


def test_all_contested_logs_can_become_stray(twice: Node) -> None:
    twice.dirs.settle(T0, None, LogConfig(), now_ms=NOW_MS)
    assert twice.dirs.get(T0) is None
    assert [len(directory.kept_aside) for directory in twice.dirs.directories] == [1, 1]
    assert T0 not in read_offsets(twice.fs, join("b", HIGH_WATERMARK_FILE))


def test_checkpoints_of_contested_logs_survive_a_restart(twice: Node) -> None:
    twice.stop()
    assert read_offsets(twice.fs, join("b", HIGH_WATERMARK_FILE))[T0] == 3
    twice.start()
    assert len(twice.dirs.contested[T0]) == 2
    assert all(directory.was_clean for directory in twice.dirs.directories)


def test_unrecovered_logs_are_not_marked_clean(twice: Node) -> None:
    twice.crash()
    twice.start()
    twice.stop()
    assert not any(twice.fs.exists(join(path, CLEAN_SHUTDOWN_FILE)) for path in twice.paths)


def test_failed_directory_is_skipped_by_settle(twice: Node) -> None:
    first, second = twice.dirs.contested[T0]
    twice.dirs.fail(first.directory, OSError(errno.EIO, "failed"))
    twice.dirs.settle(T0, first, LogConfig(), now_ms=NOW_MS)
    assert twice.dirs.get(T0) is None
    assert second.directory.kept_aside
    assert twice.fs.exists("a/t-0")


def test_truncation_writes_the_recovery_point_first() -> None:
    node = Node()
    log = node.create(T0)
    append(log, 4)
    node.dirs.checkpoints.make_durable(log)
    log.truncate_to(1, now_ms=NOW_MS)
    assert read_offsets(node.fs, join("a", RECOVERY_POINT_FILE)) == {T0: 1}


def test_logs_are_loaded_and_closed_in_threads_too(tmp_path: object) -> None:
    paths = [f"{tmp_path}/a", f"{tmp_path}/b"]
    for _ in range(2):
        dirs = LogDirs.open(OsFileSystem(), paths, lambda directory, logs: None)
        dirs.adopt(CLUSTER, 1, iter([TOPIC_ID, Uuid(b"x" * 16)]).__next__)
        dirs.load(lambda topic: LogConfig(), now_ms=NOW_MS, threads_per_directory=4)
        for number in range(10):
            append(dirs.create(TopicPartition("t", number), LogConfig(), now_ms=NOW_MS))
        dirs.close(threads_per_directory=4)
        dirs.unlock()
    assert sorted(log.log_end_offset for log in dirs) == [2] * 10


# -- failure -----------------------------------------------------------------------------------------------------------


def test_failed_directory_goes_offline_and_the_other_continues() -> None:
    node = Node("a", "b")
    first, second = node.create(T0), node.create(T1)
    node.fs.fail("write", errno.ENOSPC, path_part="a/t-0")
    with pytest.raises(LogDirFailure) as caught:
        append(first)
    lost = node.dirs.fail_log(caught.value)
    assert lost is not None
    assert lost.path == "a"
    assert node.lost == [("a", ["t-0"])]
    assert [log.name for log in node.dirs] == ["t-1"]
    assert [directory.path for directory in node.dirs.online] == ["b"]
    with pytest.raises(LogDirFailure):
        append(first)
    append(second)
    assert node.create(T2).directory == "b/t-2"
    node.dirs.fail_log(caught.value)
    assert len(node.lost) == 1, "on_failure is called once"


def test_failed_checkpoint_write_takes_the_directory_offline() -> None:
    node = Node("a", "b")
    node.create(T0)
    node.fs.fail("sync", path_part=join("a", RECOVERY_POINT_FILE))
    node.dirs.checkpoints.write_recovery_points()
    assert node.lost == [("a", ["t-0"])]


def test_unreadable_directory_is_offline_after_the_start() -> None:
    node = Node("a", "b")
    append(node.create(T0))
    append(node.create(T1))
    node.stop()
    node.fs.fail("read", path_part="a/t-0/")
    node.start()
    assert [log.name for log in node.dirs] == ["t-1"]
    assert [path for path, _ in node.lost] == ["a"]
    assert node.dirs.previous_broker_epoch == -1


def test_corrupt_partition_metadata_takes_the_directory_offline() -> None:
    node = Node("a", "b")
    append(node.create(T0))
    node.stop()
    write_file(node.fs, "a/t-0/partition.metadata", b"version: x", sync=True)
    node.start()
    assert [path for path, _ in node.lost] == ["a"]


def test_start_fails_if_every_directory_is_offline() -> None:
    fs = MemoryFileSystem()
    fs.fail("open", path_part="a/.lock")
    with pytest.raises(NoLogDir, match="Input/output error"):
        LogDirs.open(fs, ["a"], lambda directory, logs: None)


def test_create_fails_if_every_directory_is_offline() -> None:
    node = Node()
    node.fs.fail("write", errno.ENOSPC, path_part="t-0")
    node.fs.fail("sync_directory", errno.EIO, path_part="a")
    with pytest.raises(LogDirFailure):
        node.create(T0)
    with pytest.raises(NoLogDir):
        node.create(T1)


def test_offline_directory_gets_no_clean_shutdown_marker() -> None:
    node = Node("a", "b")
    node.create(T0)
    node.dirs.fail(node.dirs.directories[0], OSError(errno.EIO, "failed"))
    node.stop()
    assert not node.fs.exists(join("a", CLEAN_SHUTDOWN_FILE))
    assert node.fs.exists(join("b", CLEAN_SHUTDOWN_FILE))
