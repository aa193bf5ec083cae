"""Metadata of remote segments: records, states, lineage and look-up structures."""
