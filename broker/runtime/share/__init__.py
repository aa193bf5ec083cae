"""Share partitions of the partitions that this node leads: loaded, persisted, and driven by time (KIP-932)."""
