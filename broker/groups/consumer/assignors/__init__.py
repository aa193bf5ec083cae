"""Assignors of partitions on the coordinator's side (KIP-848): uniform, range, or an implementation by import path."""
