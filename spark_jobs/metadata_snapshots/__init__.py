"""The job that tails `__cluster_metadata` and writes the snapshots that nodes would write (KIP-630)."""
