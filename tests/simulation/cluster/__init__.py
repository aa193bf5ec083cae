"""Seeded simulation of a cluster: metadata quorum, controllers, brokers, partitions and clients in one history."""
