"""The common shape of coordinators: commands that return records, replay that changes state, timers, parked replies.

Group and transaction coordinators are state machines on the partitions of an internal topic. This package is pure: time
is an argument, records are results, and `broker.runtime.coordinators` connects both to logs.
"""
