"""Seeded simulation of the metadata quorum: the real core, driver, log and snapshots over clocks, disks and a network
that are as bad as they can be. One seed, one history. `python -m tests.simulation --help`. Brokers and their partitions
are simulated in `replication/`, on the same clocks and disks.
"""
