"""User program that reads tiered records: `read_tiered.py TOPIC OUT name=value…` writes offsets by partition to OUT."""

import json
import sys
from collections import defaultdict
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.tiered_records.datasource import OttlaTiered


def main(topic: str, out: Path, options: dict[str, str]) -> None:
    spark = SparkSession.builder.appName("tiered").getOrCreate()
    spark.dataSource.register(OttlaTiered)
    frame = spark.read.format("ottla_tiered").option("topic", topic).options(**options).load()
    found: dict[int, list[int]] = defaultdict(list)
    for row in frame.select("partition", "offset").orderBy("partition", "offset").collect():
        found[row.partition].append(row.offset)
    out.write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), dict(pair.split("=", 1) for pair in sys.argv[3:]))
