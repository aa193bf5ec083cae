"""Metadata of remote segments: records, states, leader-epoch lineage, and look-up structures."""
