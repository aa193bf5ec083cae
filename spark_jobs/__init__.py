"""The Spark jobs: snapshots and history from the metadata log, and tiered records. No broker imports this package."""
