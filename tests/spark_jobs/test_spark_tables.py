"""Queries on Spark: the tables, the report, and tiered records."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'ottla[spark]'")

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.metadata_tables.query import answer, parameters_of
from spark_jobs.metadata_tables.report import report
from spark_jobs.metadata_tables.table_store import TableStore
from spark_jobs.metadata_tables.views import QUERIES, query, register_tables
from spark_jobs.tiered_records.datasource import NAME, OttlaTiered, register
from storage.tiered.loading.store_uri import parse_store_uri
from tests.spark_jobs.metadata_tables.test_tables import Writer, log_of
from tests.spark_jobs.tiered_records.tiered_partition import BEGAN_MS, TieredPartitionHarness, options_of
from tests.support.processes.spark_session import spark as spark

pytestmark = pytest.mark.integration

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def test_every_example_query_agrees_with_the_image(spark: SparkSession, tmp_path: Path) -> None:
    log, uri = log_of(0), str(tmp_path / "tables")
    writer = Writer(TableStore(parse_store_uri(uri)))
    for number in range(0, len(log.images), 40):
        writer.take(log.rows(number, min(number + 40, len(log.images))))
    register_tables(spark, uri)
    images = [image for image in log.images if image is not None]
    image = images[len(images) // 2]
    name = next(iter(image.topics.names()))
    given = {"topic": name, "offset": str(image.offset + 1), "time": "2200-01-01"}
    answers = {}
    for file in QUERIES.glob("*.sql"):
        text = query(file.stem)
        names, rows, is_cut = answer(spark, text, {key: given[key] for key in parameters_of(text)}, 10_000)
        answers[file.stem] = [dict(zip(names, row, strict=True)) for row in rows]
        assert not is_cut
    partitions = {(row["topic"], row["partition"]): row["leader"] for row in answers["cluster_at_offset"]}
    assert partitions == {
        (topic.name, index): registration.leader
        for id in image.topics.ids()
        if (topic := image.topics.by_id(id)) is not None
        for index, registration in topic.in_order()
    }
    last = images[-1]
    assert {row["topic"] for row in answers["cluster_at_time"]} == set(last.topics.names())
    assert answers["who_changed_this"][0]["operation"] == "created"
    assert answers["partition_growth"][-1]["partitions"] == last.topics.partition_count
    assert sum(row["leads"] for row in answers["leader_balance"]) == sum(
        registration.has_leader
        for id in last.topics.ids()
        if (topic := last.topics.by_id(id)) is not None
        for _, registration in topic.in_order()
    )
    page = report(spark, uri, datetime(2026, 1, 2, tzinfo=UTC))
    assert page.count("<svg") == 3
    assert "2026-01-02 00:00 UTC" in page


def test_tiered_records_are_readable_as_a_table(spark: SparkSession, tmp_path: Path) -> None:
    harnesses = [TieredPartitionHarness(tmp_path, partition) for partition in range(2)]
    for harness in harnesses:
        for _ in range(3):
            for _ in range(4):
                harness.append(5)
            harness.roll()
    spark.dataSource.register(OttlaTiered)
    unfiltered = spark.read.format(NAME).options(**options_of(harnesses[0].bucket)).load()
    assert unfiltered.where(F.col("offset") >= 57).count() == 6, "without push-down"
    register(spark)
    try:
        frame = spark.read.format(NAME).options(**options_of(harnesses[0].bucket)).load()
        whole = frame.orderBy("partition", "offset").collect()
        assert [(row.partition, row.offset, row.key, row.value) for row in whole] == [
            (number, each.offset, each.key, each.value)
            for number, harness in enumerate(harnesses)
            for each in harness.readable_records()
        ]
        some = frame.where((F.col("partition") == 1) & (F.col("offset") >= 25))
        assert [row.offset for row in some.orderBy("offset").collect()] == list(range(25, 60))
        assert some.rdd.getNumPartitions() == 2, "segments without matching records are not read"
        since = datetime.fromtimestamp((BEGAN_MS + 45) / 1000, UTC)
        late = frame.where(F.col("timestamp") >= F.lit(since))
        assert late.count() == 30
        assert late.rdd.getNumPartitions() == 2
        assert frame.where(F.col("offset") >= 60).count() == 0
        few = (
            spark.read.format(NAME).schema("key binary, offset long").options(**options_of(harnesses[0].bucket)).load()
        )
        assert {(row.key, row.offset) for row in few.collect()} == {(row.key, row.offset) for row in whole}
    finally:
        spark.conf.unset(PUSHDOWN)
