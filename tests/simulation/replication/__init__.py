"""Seeded simulation of the data plane: real partitions, fetchers, handlers, logs and controller, with clients, over
disks, clocks and a network that are as bad as they can be. `python -m tests.simulation --plane data --help`.
"""
