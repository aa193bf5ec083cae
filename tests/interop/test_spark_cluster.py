"""The Spark pipeline on a standalone Spark cluster with remote executors, with all data in a bucket.

The cluster writes the same snapshot and tables as one machine, although all executors are killed meanwhile. The test
takes a dozen processes and two minutes of processor time, so it runs only with OTTLA_SPARK_CLUSTER=1.
"""

import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'ottla[spark]'")

import pyspark

from broker.metadata.snapshot.codec import image_batches
from broker.metadata.snapshot.manifest import SnapshotManifest
from protocol.messages.metadata_records import TopicRecord
from spark_jobs import store_directory
from spark_jobs.metadata_snapshots import __main__ as command
from spark_jobs.metadata_snapshots.snapshot_store import ObjectSnapshotStore
from spark_jobs.store_directory import StoreDirectory
from storage.tiered.loading.store_uri import parse_store_uri
from tests.spark_jobs.metadata.logs import EveryHistory, Log
from tests.spark_jobs.tiered_records.tiered_partition import TOPIC, TieredPartitionHarness, options_of
from tests.support.fakes.served_metadata_log import ServedMetadataLog
from tests.support.kafka.apache_kafka import REPOSITORY
from tests.support.processes import s3_server, snapshot_job
from tests.support.processes.s3_server import BUCKET, REGION, S3Server
from tests.support.processes.spark_cluster import SparkCluster
from tests.support.processes.spark_session import require_spark

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SEED = 20
STEPS = 100
TOPICS = 80
PARTITIONS = 500
SCRIPT = Path(command.__file__)
NO_FILES = {"spark.hadoop.fs.defaultFS": "hdfs://127.0.0.1:1"}
"""An unreachable default file system; the job must not need one."""
PACKAGES = ("broker", "protocol", "schemas", "spark_jobs", "storage")


class LargeHistory(EveryHistory):
    """A history that ends with many partitions, so that a micro-batch is spread over several executors."""

    def __init__(self, seed: int, steps: int) -> None:
        super().__init__(seed, steps)
        for number in range(TOPICS):
            topic_id = self._uuid()
            partitions = (self._partition(topic_id, index) for index in range(PARTITIONS))
            self._append([TopicRecord(name=f"large-{number}", topic_id=topic_id), *partitions])


class ExecutorKiller:
    """Kills all executors of a cluster when an offset at or above `offset` is first fetched."""

    def __init__(self, cluster: SparkCluster, offset: int) -> None:
        self._cluster = cluster
        self._offset = offset
        self.killed = 0

    def __call__(self, offset: int) -> None:
        if offset >= self._offset and not self.killed:
            self.killed = self._cluster.kill_executors()


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    require_spark()
    if os.environ.get("OTTLA_SPARK_CLUSTER") != "1":
        pytest.skip("takes two minutes of processor time; set OTTLA_SPARK_CLUSTER=1 to run it")
    if (reason := s3_server.unavailable_reason()) is not None:
        pytest.skip(reason)
    with S3Server(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as environment:
        for key, value in credentials(server).items():
            environment.setenv(key, value)
        yield server
        store_directory.opened.cache_clear()


@pytest.fixture(scope="module")
def cluster(bucket: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark") / "cluster", environment=credentials(bucket)) as running:
        yield running


def credentials(server: S3Server) -> dict[str, str]:
    """Return the environment variables from which boto3 reads credentials on every machine."""
    return {"AWS_ACCESS_KEY_ID": server.access_key_id, "AWS_SECRET_ACCESS_KEY": server.secret_access_key}


def test_spark_cluster_writes_the_same_files_as_one_machine(
    bucket: S3Server, cluster: SparkCluster, tmp_path: Path
) -> None:
    """Use two micro-batches, and executors that have the package installed."""
    log = Log.of(LargeHistory(SEED, STEPS).batches, SEED)
    end = log.batches[-1].last_offset + 1
    at = f"?endpoint={bucket.endpoint}&region={REGION}&path-style=true"
    out, tables = f"s3://{BUCKET}/out{at}", f"s3a://{BUCKET}/tables{at}"
    alone = (str(tmp_path / "out"), str(tmp_path / "tables"))
    with ServedMetadataLog(log.data, most=5) as served:
        given = ("--bootstrap-server", served.address, "--once", "--json", "--max-rows", str(end // 2 + 1))
        on_one = snapshot_job.run(*given, "--out", alone[0], "--tables", alone[1])
        assert on_one.returncode == 0, on_one.stderr
        served.on_fetch = killing = ExecutorKiller(cluster, end * 3 // 4)
        environment = {"PYSPARK_PYTHON": sys.executable, **credentials(bucket)}
        on_all = cluster.submit(
            SCRIPT, *(*given, "--out", out, "--tables", tables), settings=NO_FILES, environment=environment
        )
    assert on_all.returncode == 0, output(on_all)
    assert killing.killed == cluster.workers
    manifest = SnapshotManifest.from_json(on_all.stdout.splitlines()[-1].encode())
    assert manifest == SnapshotManifest.from_json(on_one.stdout.encode())
    image = log.images[-1]
    assert image is not None
    written = ObjectSnapshotStore(parse_store_uri(out)).pieces(manifest)
    assert b"".join(written) == b"".join(image_batches(image, log.controls[-1]))
    parts = content(tables)
    assert parts == content(alone[1])
    assert sum(name.startswith("changes/") and name.endswith(".parquet") for name in parts) > 1
    executors = {task["Task Info"]["Executor ID"] for task in cluster.happened("SparkListenerTaskEnd")}
    for worker, numbers in cluster.executors().items():
        assert len(executors.intersection(numbers)) >= 2, f"{worker}: no executor before or after the kill"


def test_package_can_be_submitted_as_a_zip(cluster: SparkCluster, tmp_path: Path) -> None:
    """Send the package as a zip to executors that have its dependencies, and read tiered records with it."""
    stages = [TieredPartitionHarness(tmp_path, partition) for partition in range(2)]
    for stage in stages:
        for _ in range(3):
            stage.append(20)
            stage.roll()
    sent = zipped(tmp_path / "ottla.zip")
    found = tmp_path / "found.json"
    options = [f"{key}={value}" for key, value in options_of(stages[0].bucket).items() if key != "topic"]
    done = cluster.submit(
        Path(__file__).parent / "spark_cluster" / "read_tiered.py",
        *(TOPIC, str(found), *options),
        options=("--py-files", str(sent)),
        settings={"spark.sql.python.filterPushdown.enabled": "true"},
        environment={"PYSPARK_PYTHON": str(without_ottla(tmp_path / "python"))},
    )
    assert done.returncode == 0, output(done)
    assert json.loads(found.read_text()) == {
        str(number): [each.offset for each in stage.readable_records()] for number, stage in enumerate(stages)
    }


def output(submitted: subprocess.CompletedProcess[str]) -> str:
    """Return the output without Spark's own log lines. Python's stderr goes to the stdout of spark-submit."""
    lines = [*submitted.stderr.splitlines(), *submitted.stdout.splitlines()]
    return "\n".join(line for line in lines if " INFO " not in line)


def content(uri: str) -> dict[str, bytes]:
    """Return the content of every object below a prefix."""
    directory = StoreDirectory(parse_store_uri(uri))
    return {found.key: b"".join(directory.get(found.key)) for found in directory.listed()}


def zipped(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for package in PACKAGES:
            for file in (REPOSITORY / package).rglob("*"):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(REPOSITORY))
    return path


def without_ottla(directory: Path) -> Path:
    """Return an interpreter that has every installed package except Ottla."""
    venv.create(directory, symlinks=True)
    (own,) = directory.glob("lib/python*/site-packages")
    # Add only the directory itself: .pth files in it are not processed.
    (own / "dependencies.pth").write_text(str(Path(pyspark.__file__).parents[1]))
    python = directory / "bin" / "python"
    imports = [str(python), "-c", "import pyarrow, spark_jobs"]
    asked = subprocess.run(imports, cwd=directory, capture_output=True, text=True, check=False)
    assert "No module named 'spark_jobs'" in asked.stderr
    return python
