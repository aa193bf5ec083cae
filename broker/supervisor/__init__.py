"""Processes of a local cluster, started, watched and stopped together. Does not know the inside of a node."""
