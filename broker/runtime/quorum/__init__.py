"""Drivers of the KRaft quorum: log, state file, transport, snapshots, and listeners of committed batches."""
