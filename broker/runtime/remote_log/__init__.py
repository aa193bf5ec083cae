"""Drivers of remote storage for hosted partitions (KIP-405): copying, expiration, compaction, reads and look-ups."""
