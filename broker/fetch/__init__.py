"""Serving fetches: rounds over partitions, waiting, incremental sessions and reads from remote storage."""
