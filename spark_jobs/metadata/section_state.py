"""The state of a section of topics: a table with a row for each topic and each partition, in the order of a snapshot.

Lists have the format of records: replica ids as big-endian int32, directories as 16 bytes each, without a count. They
are copied from the log to the snapshot unchanged.
"""

from typing import Final

import pyarrow as pa

TOPIC_ROW: Final = -1
"""The partition index in the row of a topic."""

SECTION_STATE: Final = pa.schema(
    [
        pa.field("topic_id", pa.binary(16), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("leader", pa.int32()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("partition_epoch", pa.int32()),
        pa.field("leader_recovery_state", pa.int8()),
        pa.field("replicas", pa.binary()),
        pa.field("isr", pa.binary()),
        pa.field("removing_replicas", pa.binary()),
        pa.field("adding_replicas", pa.binary()),
        pa.field("directories", pa.binary()),
        pa.field("elr", pa.binary()),
        pa.field("last_known_elr", pa.binary()),
    ]
)
"""By (topic_id, partition), ids unsigned byte by byte. The row of a topic has partition -1 and a name, and precedes its
partitions, which have all other columns. `directories` is parallel to `replicas`, or empty if none were recorded.
"""

NUMBERS: Final = ("leader", "leader_epoch", "partition_epoch", "leader_recovery_state")
LISTS: Final = ("replicas", "isr", "removing_replicas", "adding_replicas", "directories", "elr", "last_known_elr")


_EMPTY: Final = SECTION_STATE.empty_table()


def empty_state() -> pa.Table:
    """Return the state of a section without topics."""
    return _EMPTY
