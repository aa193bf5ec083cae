"""Decisions about the remote part of a log: copying, expiration, compaction, and the start of an empty leader."""
