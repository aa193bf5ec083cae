"""Plug-ins for remote metadata that fail unexpectedly (`broker.runtime.remote_metadata.plugin_manager`)."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from broker.runtime.remote_metadata.plugin_manager import PluginRemoteMetadata
from protocol.ids import LeaderEpoch
from storage.tiered.errors import InvalidSegmentTransition, RemoteMetadataNotReady
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, TopicIdPartition
from tests.storage.tiered.sample_segments import PARTITION, segment
from tests.support.fakes.memory_remote_metadata import MemoryRemoteMetadata


class Failing(MemoryRemoteMetadata):
    """Fails like an unreachable database once `is_gone` is set."""

    is_gone = False

    def _check(self) -> None:
        if self.is_gone:
            raise KeyError("no row")

    def add(self, segment: RemoteSegment) -> "asyncio.Future[None]":
        self._check()
        done = super().add(segment)
        assert isinstance(done, asyncio.Future)
        return done

    def segments(self, partition: TopicIdPartition, epoch: LeaderEpoch | None = None) -> Sequence[RemoteSegment]:
        self._check()
        return super().segments(partition, epoch)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        self._check()
        return super().is_ready(partition)

    def unassign(self, partitions: Iterable[TopicIdPartition]) -> None:
        self._check()
        super().unassign(partitions)

    async def close(self) -> None:
        self._check()


async def test_results_of_the_plugin_are_passed_on() -> None:
    theirs = Failing()
    ours: RemoteLogMetadataManager = PluginRemoteMetadata(theirs)
    ours.assign([PARTITION], [])
    await ours.wait_until_ready(PARTITION)
    first = segment(100)
    await ours.add(first)
    assert list(ours.segments(PARTITION)) == [first]
    assert list(ours.held()) == [(PARTITION, None)]
    with pytest.raises(InvalidSegmentTransition):
        await ours.add(replace(first, state=SegmentState.COPY_FINISHED))


async def test_plugin_errors_become_remote_metadata_not_ready(caplog: pytest.LogCaptureFixture) -> None:
    theirs = Failing()
    ours = PluginRemoteMetadata(theirs)
    ours.assign([PARTITION], [])
    theirs.is_gone = True
    with pytest.raises(RemoteMetadataNotReady, match="no row"):
        ours.segments(PARTITION)
    with pytest.raises(RemoteMetadataNotReady, match="no row"):
        await ours.add(segment(100))
    assert not ours.is_ready(PARTITION)
    ours.unassign([PARTITION])
    await ours.close()
    assert caplog.messages == ["The remote log metadata manager failed"] * 5
