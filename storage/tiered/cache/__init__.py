"""Bounded caches of chunks and indexes that were read from remote storage."""
