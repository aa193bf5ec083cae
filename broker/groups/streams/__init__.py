"""Streams groups (KIP-1071): the coordinator knows the topology, creates internal topics, and assigns tasks.

All decisions are pure, as in the rest of `broker.groups`: commands return records, and `replay` alone changes groups.
"""
