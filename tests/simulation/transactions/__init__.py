"""Simulation of transactions: coordinators, partition leaders and producers over a lossy network.

The product's `TransactionShard` coordinates, the product's `Log` holds the partitions. Replication is a model: a new
leader has everything below the high watermark, and perhaps more.
"""
