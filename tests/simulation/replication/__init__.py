"""Seeded simulation of replication: real partitions, fetchers, handlers, logs and controller, with clients, over
simulated clocks, disks and a network. See `python -m tests.simulation --plane data --help`.
"""
