"""Tiered records without brokers: a batch data source that reads segments straight from their store.

    from spark_jobs.tiered_records.datasource import OttlaTiered

    spark.dataSource.register(OttlaTiered)
    spark.read.format("ottla_tiered").option("uri", "s3://bucket/segments").option("topic", "orders").load()

What is still on the brokers' disks alone is not in it. Options: `options.py`.
"""
