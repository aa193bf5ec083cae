"""History of a cluster's metadata as Parquet tables: every change, and every version of everything.

`changes` has what happened; `topics`, `partitions`, `brokers`, `configs`, `acls`, `quotas` and `features` have a row
for each version of each entity, and one with `removed` when it is gone. So what is now, or was at an offset or a time,
is the last version of each entity from before then. Examples of queries: `queries/`.
"""
