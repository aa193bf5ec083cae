"""The rules of replicated partitions, without IO: leadership, in-sync replicas, commits, fencing, and fetching.

Pure: no clock, no sockets, no files, no event loop. Offsets, times and facts about other brokers are arguments;
decisions and state changes are results. `broker.runtime.partitions.partition` applies the rules to a log.
"""
