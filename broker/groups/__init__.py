"""Consumer groups as pure decisions: membership, rebalances, committed offsets.

Requests and time come in; records, answers and timers go out. No loop, no clock of its own, no randomness, no log:
`broker.runtime` supplies them. One file per operation, named for it; `shard.py` joins them.
"""
