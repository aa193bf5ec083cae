"""Creation and deletion of many logs: the number of fsyncs, and the logs that remain after a power failure."""

from collections.abc import Callable
from random import Random

import pytest

from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid, uuid_from_text
from protocol.records.builder import Record, build_batch
from storage.config import LogConfig
from storage.directories.checkpoints import PARTITION_METADATA_FILE, RECOVERY_POINT_FILE, TopicPartition, read_offsets
from storage.directories.log_dirs import LogDirs
from storage.errors import CorruptCheckpoint
from storage.files import write_file
from storage.log import Log
from tests.support.fakes.power_loss import FailingPower, lose_power_in

NOW_MS = 1_700_000_000_000
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
OLD, NEW = uuid_from_text("yD1jdMJdSCqQZBmcs2nXVA"), Uuid(b"n" * 16)
T0 = TopicPartition("t", 0)
PATH = f"a/t-0/{PARTITION_METADATA_FILE}"


class Node:
    """A node with one log directory."""

    def __init__(self) -> None:
        self.fs = FailingPower()
        self.dirs = self.start()

    def start(self) -> LogDirs:
        self.dirs = LogDirs.open(self.fs, ["a"], lambda directory, _: pytest.fail(f"{directory.failure}"))
        self.dirs.adopt(CLUSTER, 1, lambda: Uuid(b"d" * 16))
        self.dirs.load(lambda _: LogConfig(), now_ms=NOW_MS)
        return self.dirs

    def create(self, partition: TopicPartition = T0, topic_id: Uuid = OLD) -> Log:
        return self.dirs.create(partition, LogConfig(), now_ms=NOW_MS, topic_id=topic_id)

    def stop(self) -> None:
        self.dirs.close()
        self.dirs.unlock()

    def kill(self) -> None:
        """End the process with kill -9: the page cache survives."""
        self.fs.locked.clear()

    def crash(self, seed: int) -> None:
        """Lose power, and start again."""
        self.fs.crash(Random(seed))
        self.start()

    def fsyncs(self, work: Callable[[], object]) -> int:
        before = len(self.fs.log)
        work()
        return sum(operation in ("sync", "sync_directory") for operation, _ in self.fs.log[before:])


def append(log: Log, count: int = 1) -> None:
    for _ in range(count):
        log.append_as_leader(bytearray(build_batch([Record(NOW_MS, None, b"v")])), LeaderEpoch(0), now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)


# -- the number of fsyncs ----------------------------------------------------------------------------------------------


def test_creating_many_logs_costs_no_fsync() -> None:
    node = Node()
    assert node.fsyncs(lambda: [node.create(TopicPartition("t", number)) for number in range(400)]) == 0


def test_deleting_many_logs_costs_a_constant_number_of_fsyncs() -> None:
    node = Node()
    for number in range(400):
        node.create(TopicPartition("t", number))
    node.dirs.checkpoints.write_recovery_points()
    node.dirs.checkpoints.write_high_watermarks()

    def delete() -> None:
        for number in range(400):
            node.dirs.delete(TopicPartition("t", number))
        node.dirs.unsynced_removals.sync()

    assert node.fsyncs(delete) <= 7, "one for the names, two for each checkpoint file that changed"


def test_clean_stop_does_not_sync_logs_without_records() -> None:
    node = Node()
    empty = node.fsyncs(node.stop)
    node.start()
    for number in range(400):
        node.create(TopicPartition("t", number))
    assert node.fsyncs(node.stop) <= empty + 6
    node.start()
    assert len(node.dirs) == 400


def test_name_and_topic_id_of_a_log_are_synced_by_its_first_flush_alone() -> None:
    node = Node()
    log = node.create()
    append(log)
    before = len(node.fs.log)
    log.flush()
    assert ("sync", PATH) in node.fs.log[before:]
    assert ("sync_directory", "a") in node.fs.log[before:]
    append(log)
    assert node.fsyncs(log.flush) == 1


# -- kill -9 and power failures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_power_failure_after_a_creation_leaves_the_new_log_or_none(seed: int) -> None:
    node = Node()
    node.create()
    node.crash(seed)
    log = node.dirs.get(T0)
    assert log is None or (log.topic_id, log.log_end_offset) == (OLD, 0)
    assert node.create().topic_id == OLD


@pytest.mark.parametrize("content", [None, b"", b"version: 0\ntopic", bytes(45)])
def test_kill_during_a_creation_lets_the_metadata_create_the_log_again(content: bytes | None) -> None:
    node = Node()
    node.fs.make_directory("a/t-0")
    if content is not None:
        write_file(node.fs, PATH, content, sync=False)
    node.kill()
    node.start()
    assert node.dirs.get(T0) is None
    assert not node.fs.exists("a/t-0")
    assert node.create(topic_id=NEW).topic_id == NEW


@pytest.mark.parametrize("seed", range(60))
def test_flushed_log_survives_a_power_failure_with_its_topic_id(seed: int) -> None:
    node = Node()
    log = node.create()
    append(log, 3)
    log.flush()
    append(log, 2)
    node.crash(seed)
    found = node.dirs.get(T0)
    assert found is not None
    assert found.topic_id == OLD
    assert 3 <= found.log_end_offset <= 5


@pytest.mark.parametrize("seed", range(60))
def test_power_failure_never_removes_a_log_with_records(seed: int) -> None:
    """A log that was never flushed may lose its topic id or its records, but no start removes records."""
    node = Node()
    append(node.create(), 3)
    node.fs.crash(Random(seed))
    had_records = node.fs.exists("a/t-0/00000000000000000000.log") and node.fs.size("a/t-0/00000000000000000000.log")
    node.start()
    log = node.dirs.get(T0)
    if log is not None:
        assert log.topic_id in (OLD, None)
    else:
        assert not had_records


def test_torn_topic_id_of_a_flushed_log_is_an_error_of_the_disk() -> None:
    node = Node()
    log = node.create()
    append(log)
    log.flush()
    node.dirs.checkpoints.write_recovery_points()
    write_file(node.fs, PATH, b"", sync=True)
    with pytest.raises(CorruptCheckpoint):
        Log.open(node.fs, "a/t-0", LogConfig(), now_ms=NOW_MS, clean_shutdown=False, recovery_point=1)


def test_torn_topic_id_is_gone_with_the_first_flush() -> None:
    """The log may be flushed before the metadata name its topic id again."""
    node = Node()
    append(node.create())
    write_file(node.fs, PATH, bytes(8), sync=True)
    flushed = Log.open(node.fs, "a/t-0", LogConfig(), now_ms=NOW_MS, clean_shutdown=False, recovery_point=0).flush()
    node.fs.crash(Random(1))
    log = Log.open(node.fs, "a/t-0", LogConfig(), now_ms=NOW_MS, clean_shutdown=False, recovery_point=flushed)
    assert flushed > 0
    assert (log.topic_id, log.log_end_offset) == (None, flushed)


def test_power_failure_at_any_point_of_a_recreation_mixes_no_two_logs() -> None:
    """A topic is deleted and created again under its name; checkpoints of the old log never count for the new one."""
    for after in range(60):
        for seed in range(6):
            node = Node()
            old = node.create()
            append(old, 5)
            old.flush()
            old.maybe_increment_log_start_offset(4)
            node.dirs.checkpoints.write_all(node.dirs.directories[0])

            def recreate(node: Node = node) -> None:
                node.dirs.delete(T0)
                new = node.create(topic_id=NEW)
                append(new, 2)
                new.flush()
                node.dirs.checkpoints.write_all(node.dirs.directories[0])

            had_failed = lose_power_in(node.fs, after, Random(seed), recreate)
            if not had_failed:
                node.fs.crash(Random(seed))
            node.start()
            log = node.dirs.get(T0)
            if log is None or log.topic_id is None:
                continue
            if log.topic_id == NEW:
                assert (log.log_start_offset, log.high_watermark) <= (0, 2)
                assert log.log_end_offset <= 2
                assert log.log_end_offset == 2 or had_failed
            else:
                assert log.log_end_offset == 5
            assert set(read_offsets(node.fs, f"a/{RECOVERY_POINT_FILE}")) <= {T0}


@pytest.mark.parametrize("seed", range(30))
def test_synced_removals_survive_a_power_failure(seed: int) -> None:
    node = Node()
    log = node.create()
    append(log)
    log.flush()
    path = node.dirs.delete(T0)
    node.dirs.unsynced_removals.sync()
    node.crash(seed)
    assert len(node.dirs) == 0
    assert node.dirs.directories[0].stale == [path]
