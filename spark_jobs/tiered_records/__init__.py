"""A batch data source for tiered records that reads segments from remote storage without brokers.

    from spark_jobs.tiered_records.datasource import register

    register(spark)
    spark.read.format("ottla_tiered").option("uri", "s3://bucket/segments").option("topic", "orders").load()

Records that only brokers' local disks have are not included. Options: `options.py`; columns: `schema.py`.

    bucket      a bucket's content for topics: manifests, epochs, aborted transactions; plans segment ranges (planning)
    reading     one segment range in one task: its bytes, read again if damaged
    windows     bytes to whole batches
    rows        batches to records: decompressed, framed, fields located (record_fields), selected by offset and time
    columns     fields to Arrow
"""
