"""The log store: bursts of creations and deletions on the IO thread."""

import asyncio

import pytest

from broker.metadata.image.partition import UNASSIGNED_DIRECTORY
from broker.runtime.partitions.log_store import LogStore
from protocol.primitives import Uuid
from storage.compaction.cleaner import LogCleaner
from storage.config import LogConfig
from storage.directories.checkpoints import HIGH_WATERMARK_FILE, TopicPartition, read_offsets
from storage.directories.log_dirs import LogDirs
from storage.directories.removals import PendingRemovals
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.inline_io import InlineIo
from tests.support.fakes.memory_files import MemoryFileSystem

OLD, NEW = Uuid(b"o" * 16), Uuid(b"n" * 16)
COUNT = 400


class Store:
    """A log store with one directory; `io` runs its queue when told to."""

    def __init__(self) -> None:
        self.fs = MemoryFileSystem()
        self.dirs = LogDirs.open(self.fs, ["a"], lambda directory, _: pytest.fail(f"{directory.failure}"))
        self.dirs.load(lambda _: LogConfig(), now_ms=0)
        cleaner = LogCleaner(self.fs, dedupe_buffer_bytes=1024, make_durable=self.dirs.checkpoints.make_durable)
        self.io = InlineIo(asyncio.get_running_loop())
        self.store = LogStore(
            self.dirs, cleaner, PendingRemovals(self.fs), self.io, ManualClock(), delete_delay_ms=1_000
        )

    async def create(self, count: int, topic_id: Uuid = OLD) -> None:
        created = [self.store.create("t", n, topic_id, LogConfig(), UNASSIGNED_DIRECTORY) for n in range(count)]
        await self.settle()
        assert all(each.result().topic_id == topic_id for each in created)

    def delete(self, count: int) -> None:
        """Queue the deletions behind one another, as one delta of the metadata does."""
        self.io.is_held = True
        for number in range(count):
            log = self.dirs.get(TopicPartition("t", number))
            assert log is not None
            self.store.delete(log)

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def fsyncs(self) -> int:
        return sum(operation in ("sync", "sync_directory") for operation, _ in self.fs.log)


async def test_creation_and_deletion_of_many_logs_cost_a_handful_of_fsyncs() -> None:
    node = Store()
    before = node.fsyncs
    await node.create(COUNT)
    node.dirs.checkpoints.write_high_watermarks()
    node.delete(COUNT)
    node.io.release()
    await node.settle()
    assert len(node.dirs) == 0
    assert node.fsyncs - before <= 10
    assert read_offsets(node.fs, f"a/{HIGH_WATERMARK_FILE}") == {}, "the checkpoints have forgotten the logs"
    assert len([name for name in node.fs.list("a") if name.endswith("-delete")]) == COUNT


async def test_topics_created_again_under_their_names_find_no_checkpoint_of_the_deleted_logs() -> None:
    node = Store()
    await node.create(COUNT)
    node.dirs.checkpoints.write_high_watermarks()
    before = node.fsyncs
    node.delete(COUNT)
    created = [node.store.create("t", n, NEW, LogConfig(), UNASSIGNED_DIRECTORY) for n in range(COUNT)]
    creations_begin = len(node.fs.log)
    node.io.release()
    await node.settle()
    assert all(each.result().topic_id == NEW for each in created)
    operations = node.fs.log[creations_begin:]
    written = next(n for n, (name, path) in enumerate(operations) if name == "rename" and HIGH_WATERMARK_FILE in path)
    new_log = next(n for n, (name, path) in enumerate(operations) if name == "open" and path.startswith("a/t-0/"))
    assert written < new_log, "the checkpoints forget the old log before the new one has its name"
    assert node.fsyncs - before <= 10
