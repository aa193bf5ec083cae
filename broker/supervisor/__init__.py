"""Processes of a local cluster, started, watched and stopped together. Knows nothing of what a node does inside."""
