"""The columns of a record, named as Spark's Kafka connector names them."""

from typing import Final

import pyarrow as pa

HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

RECORDS: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("leaderEpoch", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(HEADER), nullable=False),
    ]
)
"""`timestamp`: of the record, or of its batch where the leader's time counts, to the millisecond; what a producer made
up beyond the year 294000 is cut down to that. `timestampType`: 0 what the producer said, 1 when the leader appended.
`leaderEpoch` is that of the batch. `key` is null where there is none, `value` for a tombstone, a header's `value` where
it has none; `headers` is empty, never null, and has what the record has in its order, duplicates too.
"""
