"""Consumer groups as pure decisions: membership, rebalances, committed offsets.

Requests and time are inputs; records, responses and timers are outputs. `broker.runtime` supplies the event loop,
clock, randomness and log. Each operation has a file with its name; `shard.py` joins them.
"""
