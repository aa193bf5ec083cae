"""Bucket inventory: audit against the metadata, garbage collection and recovery plans."""
