"""History of a cluster's metadata as Parquet tables: every change, and every version of every entity.

`changes` lists the changes; `topics`, `partitions`, `brokers`, `configs`, `acls`, `quotas` and `features` have a row
for each version of an entity, and one with `removed` after its deletion. The last version of each entity up to an
offset or a time is the state at that point. Example queries: `queries/`.
"""
