"""Bounded caches of chunks and indexes read from remote storage."""
