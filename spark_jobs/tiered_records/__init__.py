"""Tiered records without brokers: a batch data source that reads segments straight from their store.

    from spark_jobs.tiered_records.datasource import register

    register(spark)
    spark.read.format("ottla_tiered").option("uri", "s3://bucket/segments").option("topic", "orders").load()

What is still on the brokers' disks alone is not in it. Options: `options.py`; columns: `schema.py`.

    bucket      what a bucket has of topics: manifests, histories, who aborted; from there to slices (planning)
    reading     one slice in one task: the bytes about it, asked for again where they are damaged
    windows     bytes to whole batches
    rows        batches to records: opened, framed, their fields found (record_fields), chosen by offset and time
    columns     fields to Arrow
"""
