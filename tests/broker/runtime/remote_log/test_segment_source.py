"""Remote segments and their state for followers (`broker.runtime.remote_log.segment_source`)."""

from asyncio import Future
from collections.abc import Callable
from typing import TypeVar

import pytest

from broker.replication.remote_log_aux_state_machine import Load
from broker.runtime.loop.thread_pool import PoolFull
from broker.runtime.remote_log.segment_source import RemoteSegmentSource
from broker.runtime.replication.remote_log_aux_state import RemoteLogUnavailable
from protocol.ids import LeaderEpoch
from storage.directories.checkpoints import LeaderEpochEntry
from storage.tiered.errors import RetriableRemoteStorageError
from storage.tiered.remote_storage import IndexKind
from storage.tiered.segment_metadata import RemoteSegment, TopicIdPartition
from tests.scenarios.tiered.harness import PARTITION, ScenarioCluster
from tests.support.fakes.memory_remote_metadata import MemoryRemoteMetadata

T = TypeVar("T")


@pytest.fixture
def cluster() -> ScenarioCluster:
    """Broker A leads; segment u1 has offsets 0-2 of epoch 0, u2 3-5 of epochs 1 and 2."""
    cluster = ScenarioCluster(["A", "B"])
    leader = cluster.brokers["A"]
    cluster.lead("A", 0)
    cluster.write(["m0", "m1", "m2"])
    cluster.lead("A", 1)
    leader.log.roll(0)
    cluster.write(["m3", "m4"])
    cluster.lead("A", 2)
    cluster.write(["m5"])
    leader.log.roll(0)
    cluster.upload("A")
    return cluster


def source(cluster: ScenarioCluster, *, skips_remote: bool = False) -> RemoteSegmentSource:
    return RemoteSegmentSource(
        cluster.metadata, cluster.storage, cluster, cluster.loop, skips_remote=lambda: skips_remote
    )


def load(
    cluster: ScenarioCluster, *, next_offset: int = 6, log_start: int = 0, last_epoch: int = 2
) -> "Load[RemoteSegment]":
    return Load(cluster.segments()[1], next_offset, log_start, LeaderEpoch(last_epoch))


def test_segment_is_found_by_offset_and_epoch(cluster: ScenarioCluster) -> None:
    replica = cluster.brokers["B"]
    u1, u2 = cluster.segments()
    assert source(cluster).segment_for(replica, LeaderEpoch(0), 2).result() == u1
    assert source(cluster).segment_for(replica, LeaderEpoch(1), 4).result() == u2
    assert source(cluster).segment_for(replica, LeaderEpoch(0), 4).result() is None


def test_unloaded_metadata_are_no_failure(cluster: ScenarioCluster) -> None:
    cluster.metadata.not_ready.add(PARTITION)
    error = source(cluster).segment_for(cluster.brokers["B"], LeaderEpoch(0), 2).exception()
    assert isinstance(error, RemoteLogUnavailable)
    assert not error.is_failure


@pytest.mark.parametrize(
    ("log_start", "epochs"),
    [
        (
            0,
            (
                LeaderEpochEntry(LeaderEpoch(0), 0),
                LeaderEpochEntry(LeaderEpoch(1), 3),
                LeaderEpochEntry(LeaderEpoch(2), 5),
            ),
        ),
        (4, (LeaderEpochEntry(LeaderEpoch(1), 4), LeaderEpochEntry(LeaderEpoch(2), 5))),
    ],
)
def test_loaded_state_is_that_of_the_remote_log(
    cluster: ScenarioCluster, log_start: int, epochs: tuple[LeaderEpochEntry, ...]
) -> None:
    start = source(cluster).load(cluster.brokers["B"], load(cluster, log_start=log_start)).result()
    assert (start.next_offset, start.log_start_offset, start.epochs) == (6, log_start, epochs)
    assert start.producers.end_offset == 6


def test_segment_is_used_as_far_as_the_leader_agrees(cluster: ScenarioCluster) -> None:
    start = source(cluster).load(cluster.brokers["B"], load(cluster, next_offset=5, last_epoch=1)).result()
    assert (start.next_offset, start.epochs) == (
        5,
        (LeaderEpochEntry(LeaderEpoch(0), 0), LeaderEpochEntry(LeaderEpoch(1), 3)),
    )
    assert start.producers.end_offset == 5


def unavailable(cluster: ScenarioCluster, wanted: "Load[RemoteSegment]") -> RemoteLogUnavailable:
    error = source(cluster).load(cluster.brokers["B"], wanted).exception()
    assert isinstance(error, RemoteLogUnavailable)
    return error


def test_failing_store_is_unavailable(cluster: ScenarioCluster) -> None:
    cluster.storage.failures.append(RetriableRemoteStorageError("503"))
    assert unavailable(cluster, load(cluster)).is_failure


@pytest.mark.parametrize("content", [b"", b"0\n1\n", b"0\n1\n0 0\n"], ids=["empty", "truncated", "another segment"])
def test_invalid_leader_epochs_are_refused(cluster: ScenarioCluster, content: bytes) -> None:
    stored = cluster.storage.segments[cluster.segments()[1].id.id]
    stored.indexes[IndexKind.LEADER_EPOCH] = content
    assert unavailable(cluster, load(cluster)).is_failure


def test_deleted_segment_is_unavailable(cluster: ScenarioCluster) -> None:
    wanted = load(cluster)
    cluster.storage.segments.clear()
    assert unavailable(cluster, wanted).is_failure


def test_full_pool_is_no_failure(cluster: ScenarioCluster) -> None:
    class Full:
        def submit(self, work: Callable[[], T]) -> "Future[T]":
            raise PoolFull("too much waits")

    error = (
        RemoteSegmentSource(cluster.metadata, cluster.storage, Full(), cluster.loop)
        .load(cluster.brokers["B"], load(cluster))
        .exception()
    )
    assert isinstance(error, RemoteLogUnavailable)
    assert not error.is_failure


def test_plugin_error_fails_only_the_request(cluster: ScenarioCluster) -> None:
    class Broken(MemoryRemoteMetadata):
        def segment_for(self, partition: TopicIdPartition, epoch: int, offset: int) -> RemoteSegment | None:
            raise ZeroDivisionError

    class Stopped:
        def submit(self, work: Callable[[], T]) -> "Future[T]":
            raise RuntimeError("the pool was stopped")

    replica = cluster.brokers["B"]
    broken = RemoteSegmentSource(Broken(), cluster.storage, Stopped(), cluster.loop)
    assert isinstance(broken.segment_for(replica, LeaderEpoch(0), 2).exception(), ZeroDivisionError)
    assert isinstance(broken.load(replica, load(cluster)).exception(), RuntimeError)


@pytest.mark.parametrize("skips_remote", [True, False])
def test_skipping_follows_the_present_configuration(cluster: ScenarioCluster, skips_remote: bool) -> None:
    assert source(cluster, skips_remote=skips_remote).skips_remote is skips_remote
