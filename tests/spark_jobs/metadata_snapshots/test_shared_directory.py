"""A directory that not all machines share is refused before anything is written to it; the cluster here is a fake."""

import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'ottla[spark]'")

from pyspark.sql import SparkSession

from spark_jobs.metadata_snapshots.shared_directory import LOOKS, check_shared, host_without
from spark_jobs.metadata_source.metadata_log import SourceRefused
from storage.tiered.loading.store_uri import StoreUri

CORES = 3


class Cluster:
    """A session for the check; `before` runs when executors begin."""

    defaultParallelism = CORES

    def __init__(self, before: Callable[[], None] = lambda: None, master: str = "spark://h:1") -> None:
        self.master = master
        self.sparkContext = self
        self.looks = 0
        self._before = before
        self._items: list[object] = []

    def parallelize(self, items: Iterable[object], slices: int) -> "Cluster":
        self._items, self.looks = list(items), slices
        return self

    def map(self, function: Callable[[object], object]) -> "Cluster":
        self._before()
        self._items = [function(item) for item in self._items]
        return self

    def collect(self) -> list[object]:
        return self._items


def check(cluster: Cluster, place: StoreUri) -> None:
    check_shared(cast(SparkSession, cluster), place)


def test_shared_directory_stays_unchanged(tmp_path: Path) -> None:
    cluster = Cluster()
    check(cluster, StoreUri(directory=str(tmp_path)))
    assert cluster.looks == LOOKS * CORES
    assert not list(tmp_path.iterdir())


def test_directory_invisible_to_an_executor_is_refused(tmp_path: Path) -> None:
    def elsewhere() -> None:
        for path in tmp_path.iterdir():
            path.unlink()

    with pytest.raises(SourceRefused, match=f"{tmp_path} is another directory on {socket.gethostname()}, where"):
        check(Cluster(elsewhere), StoreUri(directory=str(tmp_path)))


def test_executor_creates_no_missing_directory(tmp_path: Path) -> None:
    assert host_without(StoreUri(directory=str(tmp_path / "out")), "x") == socket.gethostname()
    assert not list(tmp_path.iterdir())


def test_buckets_and_local_masters_need_no_check(tmp_path: Path) -> None:
    for cluster, place in (
        (Cluster(master="local[2]"), StoreUri(directory=str(tmp_path))),
        (Cluster(), StoreUri(bucket="b")),
    ):
        check(cluster, place)
        assert cluster.looks == 0
