"""Program for the connector's PySpark that reads `__cluster_metadata` as a batch and a stream into `found.json`.

read_topic.py BOOTSTRAP JARS_DIRECTORY WORK_DIRECTORY
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(bootstrap: str, jars: str, work: str) -> None:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.jars", ",".join(map(str, Path(jars).glob("*.jar"))))
        .getOrCreate()
    )
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "__cluster_metadata", "startingOffsets": "earliest"}
    once = session.read.format("kafka").options(**options).load()
    stream = session.readStream.format("kafka").options(**options).load()
    rows = f"{work}/rows"
    query = (
        stream.select("offset", "value")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{work}/checkpoint")
        .trigger(availableNow=True)
        .start(rows)
    )
    query.awaitTermination()
    found = {
        "once": [[row.offset, row.value.hex()] for row in once.orderBy("offset").collect()],
        "stream": [row.offset for row in session.read.parquet(rows).orderBy("offset").collect()],
    }
    Path(work, "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
