"""Two jobs in one location: the later one owns it, whatever the earlier one still does; and locations of another
cluster.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from broker.metadata.snapshot.manifest import LATEST, SnapshotManifest
from protocol.ids import LeaderEpoch
from spark_jobs.metadata_snapshots.commits import empty
from spark_jobs.metadata_snapshots.failures import failure_of
from spark_jobs.metadata_snapshots.out_check import check_out
from spark_jobs.metadata_snapshots.ownership import OWNER, Ownership, TakenOver
from spark_jobs.metadata_snapshots.state_store import StateStore
from spark_jobs.metadata_source.metadata_log import SourceRefused
from storage.tiered.loading.store_uri import StoreUri


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    return StateStore(StoreUri(directory=str(tmp_path)))


def test_latest_job_owns_the_state(store: StateStore) -> None:
    first, second = Ownership(store, "a", "process 1 on x"), Ownership(store, "b", "process 2 on y")
    first.take()
    first.check()
    second.take()
    second.check()
    with pytest.raises(
        TakenOver, match=r"^another job, process 2 on y, now folds into .*, so this job ends\.$"
    ) as caught:
        first.check()
    failure = failure_of(caught.value)
    assert failure is not None
    assert not failure.is_retriable


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff"])
def test_unreadable_token_belongs_to_another_job(store: StateStore, content: bytes) -> None:
    store.put(OWNER, [content])
    with pytest.raises(TakenOver, match=r"^another job now folds"):
        Ownership(store, "a", "x").check()


def test_removed_state_ends_the_job(store: StateStore) -> None:
    owner = Ownership(store, "a", "x")
    owner.take()
    store.delete([OWNER])
    with pytest.raises(TakenOver, match="was removed"):
        owner.check()


def test_location_belongs_to_one_cluster(store: StateStore) -> None:
    check_out(store.uri, "mine")
    store.write_commit(replace(empty("mine"), end=5))
    check_out(store.uri, "mine")
    with pytest.raises(
        SourceRefused, match=r"belongs to cluster mine, but the brokers belong to theirs; use another --out\.$"
    ):
        check_out(store.uri, "theirs")


def test_location_with_snapshots_only_belongs_to_one_cluster(store: StateStore) -> None:
    manifest = SnapshotManifest(
        cluster_id="mine",
        end_offset=5,
        epoch=LeaderEpoch(1),
        size=9,
        sha256="0" * 64,
        records=2,
        last_contained_log_timestamp=3,
    )
    StateStore(store.uri, "").put(LATEST, [manifest.to_json()])
    check_out(store.uri, "mine")
    with pytest.raises(SourceRefused):
        check_out(store.uri, "theirs")
