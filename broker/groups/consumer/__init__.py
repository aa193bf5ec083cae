"""Consumer groups of the second generation (KIP-848): the coordinator assigns partitions, and heartbeats carry them.

All decisions are pure, as in the rest of `broker.groups`: commands return records, and `replay` alone changes groups.
"""
