"""Remote segments and their state for followers (`broker.runtime.remote_log.segment_source`)."""

from asyncio import Future
from collections.abc import Callable
from typing import TypeVar

import pytest

from broker.replication.remote_log_aux_state_machine import Load
from broker.runtime.loop.thread_pool import PoolFull
from broker.runtime.remote_log.segment_source import RemoteSegmentSource
from broker.runtime.replication.remote_log_aux_state import RemoteLogUnavailable
from storage.directories.checkpoints import LeaderEpochEntry
from storage.tiered.errors import RetriableRemoteStorageError
from storage.tiered.remote_storage import IndexKind
from storage.tiered.segment_metadata import RemoteSegment, TopicIdPartition
from tests.scenarios.tiered.harness import PARTITION, ScenarioCluster
from tests.support.fakes.memory_remote_metadata import MemoryRemoteMetadata

T = TypeVar("T")


@pytest.fixture
def world() -> ScenarioCluster:
    """Broker A leads; segment u1 has offsets 0-2 of epoch 0, u2 3-5 of epochs 1 and 2."""
    world = ScenarioCluster(["A", "B"])
    leader = world.brokers["A"]
    world.lead("A", 0)
    world.write(["m0", "m1", "m2"])
    world.lead("A", 1)
    leader.log.roll(0)
    world.write(["m3", "m4"])
    world.lead("A", 2)
    world.write(["m5"])
    leader.log.roll(0)
    world.upload("A")
    return world


def source(world: ScenarioCluster, *, skips_remote: bool = False) -> RemoteSegmentSource:
    return RemoteSegmentSource(world.metadata, world.storage, world, world.loop, skips_remote=lambda: skips_remote)


def load(
    world: ScenarioCluster, *, next_offset: int = 6, log_start: int = 0, last_epoch: int = 2
) -> "Load[RemoteSegment]":
    return Load(world.segments()[1], next_offset, log_start, last_epoch)


def test_segment_is_found_by_offset_and_epoch(world: ScenarioCluster) -> None:
    replica = world.brokers["B"]
    u1, u2 = world.segments()
    assert source(world).segment_for(replica, 0, 2).result() == u1
    assert source(world).segment_for(replica, 1, 4).result() == u2
    assert source(world).segment_for(replica, 0, 4).result() is None


def test_unloaded_metadata_are_no_failure(world: ScenarioCluster) -> None:
    world.metadata.not_ready.add(PARTITION)
    error = source(world).segment_for(world.brokers["B"], 0, 2).exception()
    assert isinstance(error, RemoteLogUnavailable)
    assert not error.is_failure


@pytest.mark.parametrize(
    ("log_start", "epochs"),
    [
        (0, (LeaderEpochEntry(0, 0), LeaderEpochEntry(1, 3), LeaderEpochEntry(2, 5))),
        (4, (LeaderEpochEntry(1, 4), LeaderEpochEntry(2, 5))),
    ],
)
def test_loaded_state_is_that_of_the_remote_log(
    world: ScenarioCluster, log_start: int, epochs: tuple[LeaderEpochEntry, ...]
) -> None:
    start = source(world).load(world.brokers["B"], load(world, log_start=log_start)).result()
    assert (start.next_offset, start.log_start_offset, start.epochs) == (6, log_start, epochs)
    assert start.producers.end_offset == 6


def test_segment_is_used_as_far_as_the_leader_agrees(world: ScenarioCluster) -> None:
    start = source(world).load(world.brokers["B"], load(world, next_offset=5, last_epoch=1)).result()
    assert (start.next_offset, start.epochs) == (5, (LeaderEpochEntry(0, 0), LeaderEpochEntry(1, 3)))
    assert start.producers.end_offset == 5


def unavailable(world: ScenarioCluster, wanted: "Load[RemoteSegment]") -> RemoteLogUnavailable:
    error = source(world).load(world.brokers["B"], wanted).exception()
    assert isinstance(error, RemoteLogUnavailable)
    return error


def test_failing_store_is_unavailable(world: ScenarioCluster) -> None:
    world.storage.failures.append(RetriableRemoteStorageError("503"))
    assert unavailable(world, load(world)).is_failure


@pytest.mark.parametrize("content", [b"", b"0\n1\n", b"0\n1\n0 0\n"], ids=["empty", "truncated", "another segment"])
def test_invalid_leader_epochs_are_refused(world: ScenarioCluster, content: bytes) -> None:
    stored = world.storage.segments[world.segments()[1].id.id]
    stored.indexes[IndexKind.LEADER_EPOCH] = content
    assert unavailable(world, load(world)).is_failure


def test_deleted_segment_is_unavailable(world: ScenarioCluster) -> None:
    wanted = load(world)
    world.storage.segments.clear()
    assert unavailable(world, wanted).is_failure


def test_full_pool_is_no_failure(world: ScenarioCluster) -> None:
    class Full:
        def submit(self, work: Callable[[], T]) -> "Future[T]":
            raise PoolFull("too much waits")

    error = (
        RemoteSegmentSource(world.metadata, world.storage, Full(), world.loop)
        .load(world.brokers["B"], load(world))
        .exception()
    )
    assert isinstance(error, RemoteLogUnavailable)
    assert not error.is_failure


def test_plugin_error_fails_only_the_request(world: ScenarioCluster) -> None:
    class Broken(MemoryRemoteMetadata):
        def segment_for(self, partition: TopicIdPartition, epoch: int, offset: int) -> RemoteSegment | None:
            raise ZeroDivisionError

    class Stopped:
        def submit(self, work: Callable[[], T]) -> "Future[T]":
            raise RuntimeError("the pool was stopped")

    replica = world.brokers["B"]
    broken = RemoteSegmentSource(Broken(), world.storage, Stopped(), world.loop)
    assert isinstance(broken.segment_for(replica, 0, 2).exception(), ZeroDivisionError)
    assert isinstance(broken.load(replica, load(world)).exception(), RuntimeError)


@pytest.mark.parametrize("skips_remote", [True, False])
def test_skipping_follows_the_present_configuration(world: ScenarioCluster, skips_remote: bool) -> None:
    assert source(world, skips_remote=skips_remote).skips_remote is skips_remote
