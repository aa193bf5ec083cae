"""What every coordinator is made of: commands that return records, a replay that mutates, keyed timers, parked replies.

Groups and transactions are state machines on the partitions of an internal topic. This package holds their common shape
and is pure: time is handed in, records are handed out, and `broker.runtime.coordinators` joins both to real logs.
"""
