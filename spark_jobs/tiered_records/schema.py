"""The columns of a record, with the names of Spark's Kafka connector."""

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
"""`timestamp`: of the record, or of its batch under LogAppendTime, to the millisecond; later than the year 294000 is
clipped. `timestampType`: 0 CreateTime, 1 LogAppendTime. `leaderEpoch` is that of the batch. `key` may be null, `value`
is null for a tombstone, and a header's `value` may be null; `headers` is empty, never null, and has all headers in
order, including duplicates.
"""
