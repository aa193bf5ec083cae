"""The metadata log as history: images and changes equal those of a replay, whatever the snapshots."""

import asyncio
from collections.abc import Sequence

import pytest

from broker.console import history
from broker.console.history import LogAccess, MetadataHistory
from broker.console.request import ConsoleError
from broker.metadata.image.config_image import ConfigResource
from broker.metadata.image.loader import MetadataLoader, RecordBatch
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import MetadataRecord, encode_record
from broker.metadata.snapshot.codec import image_batches
from broker.metadata.timeline.sentences import describe
from broker.quorum.identity import SnapshotId
from protocol.ids import LeaderEpoch, Offset
from protocol.messages.metadata_records import NoOpRecord
from protocol.records.batch import parse_header
from protocol.records.control import ControlType, control_batch
from storage.local_log import LogSlice
from tests.broker.metadata.histories import History, folded
from tests.support.fakes.batches import data_batch
from tests.support.fakes.runtimes import make_runtime


def not_secret(resource: ConfigResource, key: str) -> bool:
    return False


class MemoryLog:
    """A metadata log in memory. `trim` removes batches that a snapshot covers; `reads` counts the chunks."""

    def __init__(self, batches: Sequence[RecordBatch]) -> None:
        self.data = [_encoded(batch) for batch in batches]
        self.end = batches[-1].last_offset + 1
        self.snapshots: dict[SnapshotId, bytes] = {}
        self.log_start_offset = 0
        self.is_truncating = False
        self.reads = 0
        self.warmed = 0
        self.is_cold = False

    def read(self, offset: int, max_bytes: int, upper: int) -> LogSlice:
        self.reads += 1
        found, following = b"", offset
        for data in self.data:
            header = parse_header(data)
            if header.base_offset < following:
                continue
            if header.last_offset >= upper or (found and len(found) + len(data) > max_bytes):
                break
            found += data
            following = header.last_offset + 1
        return LogSlice(found, following, self.is_cold, 0, 0)

    def warm(self, found: LogSlice) -> None:
        self.warmed += 1

    def read_snapshot_page(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes:
        return self.snapshots[snapshot_id][position : position + max_bytes]

    def add_snapshot(self, image: MetadataImage) -> SnapshotId:
        id = SnapshotId(Offset(image.offset + 1), image.epoch)
        self.snapshots[id] = b"".join(image_batches(image, None))
        return id

    def trim(self, start: int) -> None:
        self.log_start_offset = start
        self.data = [data for data in self.data if parse_header(data).last_offset >= start]


def _encoded(batch: RecordBatch) -> bytes:
    if not batch.records:
        return control_batch(
            [(ControlType.LEADER_CHANGE, b"")],
            batch.timestamp_ms,
            base_offset=batch.base_offset,
            leader_epoch=batch.epoch,
        )
    frames = [_frame(record) for record in batch.records]
    return data_batch(frames, base_offset=batch.base_offset, epoch=batch.epoch, timestamp_ms=batch.timestamp_ms)


def _frame(record: MetadataRecord) -> bytes:
    return encode_record(record, record.MAX_VERSION)


class Past:
    """A history over a log in memory, with small chunks."""

    def __init__(self, seed: int = 3, steps: int = 120) -> None:
        self.batches = History(seed, steps=steps).batches
        self.log = MemoryLog(self.batches)
        self.high_watermark = self.log.end
        access = LogAccess(
            self.log,
            lambda: self.high_watermark,
            lambda: self.log.is_truncating,
            lambda: list(self.log.snapshots),
        )
        self.history = MetadataHistory(access, make_runtime(asyncio.get_running_loop()), not_secret)

    def image_at(self, offset: int) -> MetadataImage:
        return folded([batch for batch in self.batches if batch.last_offset <= offset])

    def snapshot(self, number: int) -> int:
        """Add a snapshot behind batch `number`; return its end offset."""
        return self.log.add_snapshot(folded(self.batches[:number])).end_offset

    def sentences(self) -> list[tuple[int, str]]:
        """Return all changes, the newest first, from a replay without the history."""
        loader, found = MetadataLoader(supported=None), list[tuple[int, str]]()
        for batch in self.batches:
            changes = describe(loader.load([batch]).delta, not_secret)
            found += [(batch.last_offset, change.sentence) for change in changes]
        return found[::-1]

    async def all_changes(self, limit: int) -> list[tuple[int, str]]:
        found, before = list[tuple[int, str]](), 2**62
        while True:
            page, following = await self.history.changes(before, limit)
            found += [(each.offset, each.change.sentence) for each in page]
            if following is None:
                return found
            assert following < before
            before = following


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "CHUNK_BYTES", 4_096)
    monkeypatch.setattr(history, "PAGE_BYTES", 1_000)


async def test_image_at_every_offset_is_that_of_a_replay() -> None:
    past = Past()
    past.snapshot(40)
    for offset in range(0, past.log.end, 7):
        found = await past.history.image_at(offset)
        assert found._replace(provenance=past.image_at(offset).provenance) == past.image_at(offset)


async def test_snapshots_stand_for_the_trimmed_part_of_the_log() -> None:
    past = Past()
    end = past.snapshot(40)
    past.log.trim(end)
    bounds = await past.history.bounds()
    assert (bounds.first, bounds.last) == (end - 1, past.log.end - 1)
    assert (await past.history.image_at(end - 1)).topics == past.image_at(end - 1).topics
    for offset in (end - 2, past.log.end):
        with pytest.raises(ConsoleError, match=f"has offsets from {end - 1} to {past.log.end - 1}"):
            await past.history.image_at(offset)
    changes = await past.all_changes(10)
    assert changes == [each for each in past.sentences() if each[0] >= end]


@pytest.mark.parametrize("limit", [1, 10, 500])
async def test_pages_of_changes_are_complete_and_in_order(limit: int) -> None:
    past = Past()
    for number in (30, 60, 90):
        past.snapshot(number)
    changes = await past.all_changes(limit)
    assert sorted(changes, reverse=True) == sorted(past.sentences(), reverse=True)
    assert [offset for offset, _ in changes] == sorted((offset for offset, _ in changes), reverse=True)


async def test_uncommitted_changes_are_not_shown() -> None:
    past = Past()
    past.high_watermark = past.batches[50].last_offset + 1
    found, _ = await past.history.changes(2**62, 5)
    assert found[0].offset <= past.batches[50].last_offset
    with pytest.raises(ConsoleError):
        await past.history.image_at(past.batches[51].last_offset)


async def test_new_changes_cost_only_their_part_of_the_log() -> None:
    past = Past()
    past.high_watermark = past.batches[-2].last_offset + 1
    await past.history.changes(2**62, 5)
    reads = past.log.reads
    past.high_watermark = past.log.end
    await past.history.changes(2**62, 5)
    assert past.log.reads == reads + 1
    await past.history.image_at(10)
    reads = past.log.reads
    await past.history.image_at(10)
    assert past.log.reads == reads


async def test_cold_part_of_the_log_is_read_on_the_io_thread_first() -> None:
    past = Past(steps=10)
    past.log.is_cold = True
    await past.history.image_at(past.log.end - 1)
    assert past.log.warmed == past.log.reads


async def test_log_that_is_being_truncated_is_left_alone() -> None:
    past = Past(steps=10)
    past.log.is_truncating = True
    with pytest.raises(ConsoleError, match="is being changed"):
        await past.history.image_at(5)


async def test_requests_that_end_early_leave_the_replay_intact() -> None:
    past = Past()
    for _ in range(3):
        asked = asyncio.ensure_future(past.history.changes(2**62, 5))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asked.cancel()
    changes = await past.all_changes(100)
    assert sorted(changes) == sorted(past.sentences())
    past.history.close()


async def test_empty_batches_change_nothing() -> None:
    past = Past(steps=5)
    log = MemoryLog([*past.batches, RecordBatch(past.log.end, past.log.end, LeaderEpoch(9), 5, [NoOpRecord()])])
    access = LogAccess(log, lambda: log.end, lambda: False, list)
    newer = MetadataHistory(access, make_runtime(asyncio.get_running_loop()), not_secret)
    found, _ = await newer.changes(2**62, 1_000)
    assert {each.offset for each in found} == {offset for offset, _ in past.sentences()}
