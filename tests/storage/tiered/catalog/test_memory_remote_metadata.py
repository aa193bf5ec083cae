"""The shared log in memory that replaces the metadata topic in other tests."""

import asyncio

import pytest

from protocol.ids import LeaderEpoch
from storage.tiered.errors import InvalidSegmentTransition, RemoteMetadataNotReady
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_metadata import SegmentState
from tests.storage.tiered.catalog.test_metadata_cache import segment, update
from tests.storage.tiered.sample_segments import PARTITION
from tests.support.fakes.memory_remote_metadata import MemoryRemoteMetadata, RemoteMetadataLog

NEW = segment(1, 0, 9, [(0, 0)])


def test_brokers_share_one_metadata_log() -> None:
    async def run() -> None:
        log = RemoteMetadataLog()
        here, there = MemoryRemoteMetadata(log), MemoryRemoteMetadata(log)
        managers: list[RemoteLogMetadataManager] = [here, there]
        with pytest.raises(RemoteMetadataNotReady):
            await here.add(NEW)
        here.assign([PARTITION], [])
        there.assign([], [PARTITION])
        await managers[0].add(NEW)
        await managers[0].update(update(NEW, SegmentState.COPY_FINISHED))
        assert managers[1].segment_for(PARTITION, LeaderEpoch(0), 5) is not None
        with pytest.raises(InvalidSegmentTransition):
            await there.add(NEW)
        there.unassign([PARTITION])
        with pytest.raises(RemoteMetadataNotReady):
            there.segments(PARTITION)

    asyncio.run(run())


def test_events_are_delayed_and_fail_on_request() -> None:
    async def run() -> None:
        here = MemoryRemoteMetadata()
        here.assign([PARTITION], [])
        here.log.is_held = True
        added = asyncio.ensure_future(here.add(NEW))
        await asyncio.sleep(0)
        assert here.segments(PARTITION) == []
        here.log.fail_next(TimeoutError(), applies=True)
        here.log.release()
        with pytest.raises(TimeoutError):
            await added
        assert here.segments(PARTITION) == [NEW]
        here.not_ready.add(PARTITION)
        ready = asyncio.ensure_future(here.wait_until_ready(PARTITION))
        await asyncio.sleep(0)
        assert not ready.done()
        here.become_ready(PARTITION)
        await ready

    asyncio.run(run())
