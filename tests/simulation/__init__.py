"""Seeded simulations of the product's real code over simulated clocks, disks and networks.

`quorum/` simulates the metadata quorum, `replication/` brokers with their controller and clients, `remote_log/` tiered
partitions, `cluster/` the quorum with its controllers, brokers, clients and a tiered topic in one history, and
`transactions/` coordinators with partition leaders and producers. A seed determines the whole history. See
`python -m tests.simulation --help`.
"""
