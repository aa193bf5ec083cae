"""Hosted partitions: registry, roles, reads, in-sync replica changes, and maintenance of their logs."""
