"""Inventory of a bucket: audit against metadata, garbage collection, and recovery plans."""
