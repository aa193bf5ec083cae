"""The metadata log as columns: record batches to rows, rows to state and changes, state to snapshot bytes.

Independent of Spark: numpy and pyarrow on bytes and tables, without IO or clock. The node's own code
(`broker.metadata`) defines the meaning of records, their frames, and their order in a snapshot; this package processes
a million records at once, and the tests compare both. A cluster is folded by *section*: sections 0 to 31 hold topics
and their partitions by the leading five bits of the topic id; section 32, the registry, holds everything else.
"""
