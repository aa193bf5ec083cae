"""Drivers of coordinator shards: loading, appending, and answering after the commit."""
