"""The rules of replicated partitions, without IO: who leads, who is in sync, what is committed, who is fenced.

Pure: no clock, no sockets, no files, no event loop. Offsets, times and facts about other brokers come in as arguments;
answers and state changes go out. `broker.runtime.partitions.partition` runs these rules over a real log.
"""
