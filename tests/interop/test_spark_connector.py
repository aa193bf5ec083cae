"""Spark's Kafka connector reads the metadata topic as rows.

The connector supports few Spark versions, the newest of which is older than the pipeline's. The test therefore
downloads a second PySpark (some 400 MB) and runs only with OTTLA_SPARK_CONNECTOR=1.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.metadata.image.records import decode_record
from protocol.messages.metadata_records import TopicRecord
from tests.support.clients.replicated_load import create_topic
from tests.support.kafka.apache_kafka import REPOSITORY
from tests.support.processes.ottla_node import OttlaNode

pytestmark = [pytest.mark.interop, pytest.mark.slow]

HERE = Path(__file__).parent / "spark_connector"
BUILD = REPOSITORY / "build" / "spark_connector"
PYSPARK = "pyspark==4.0.0"
TOPICS = 5


@pytest.fixture(scope="module")
def connector() -> Path:
    """Return the directory of the jars, beside which PySpark is installed."""
    if os.environ.get("OTTLA_SPARK_CONNECTOR") != "1":
        pytest.skip("downloads a second PySpark; set OTTLA_SPARK_CONNECTOR=1 to run it")
    jars, python = BUILD / "jars", BUILD / "python"
    mvn = ["mvn", "--batch-mode", "--quiet", "--file", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
    wanted = "spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2"
    if not jars.exists():
        subprocess.run([*mvn, f"-DincludeArtifactIds={wanted}", f"-DoutputDirectory={jars}"], check=True)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", str(python), PYSPARK], check=True)
    return jars


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    (tmp_path / "node").mkdir()
    with OttlaNode(tmp_path / "node", {}) as running:
        yield running


def test_connector_reads_every_record_as_batch_and_stream(connector: Path, node: OttlaNode, tmp_path: Path) -> None:
    for number in range(TOPICS):
        create_topic(node.bootstrap, f"topic-{number}", 2, 1)
    command = [sys.executable, str(HERE / "read_topic.py"), node.bootstrap, str(connector), str(tmp_path)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(BUILD / "python")}, check=True, timeout=600)
    found = json.loads((tmp_path / "found.json").read_text())
    offsets = [offset for offset, _ in found["once"]]
    assert offsets == sorted(set(offsets))
    assert found["stream"] == offsets[: len(found["stream"])], "the stream ended before the batch read began"
    assert len(found["stream"]) > TOPICS
    records = [decode_record(bytes.fromhex(value)) for _, value in found["once"]]
    topics = {record.name for record in records if isinstance(record, TopicRecord)}
    assert topics >= {f"topic-{number}" for number in range(TOPICS)}
