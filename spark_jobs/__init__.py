"""The Spark pipeline: snapshots and history from the metadata log. Nothing here is imported by a broker."""
