"""The metadata log as columns: record batches to rows, rows to state and changes, state to snapshot bytes.

Spark-free and pure: numpy and pyarrow on bytes and tables, no IO, no clock. What a record means, how it is framed and
in what order a snapshot holds it is the node's own code (`broker.metadata`); here is the same on a million records at
once, and the tests hold one to the other. A cluster is folded by *section*: 0 to 31 are topics and their partitions by
the leading five bits of the topic id, 32 is the registry, everything else.
"""
