"""Changes of topics and partitions as rows with the state before and after."""

from typing import Final

import pyarrow as pa

_INTS: Final = pa.list_(pa.field("item", pa.int32(), nullable=False))
_IDS: Final = pa.list_(pa.field("item", pa.binary(16), nullable=False))

STATE_FIELDS: Final = (
    ("leader", pa.int32()),
    ("leader_epoch", pa.int32()),
    ("partition_epoch", pa.int32()),
    ("leader_recovery_state", pa.int8()),
    ("replicas", _INTS),
    ("isr", _INTS),
    ("removing_replicas", _INTS),
    ("adding_replicas", _INTS),
    ("directories", _IDS),
    ("elr", _INTS),
    ("last_known_elr", _INTS),
)
"""The fields of a partition's state, with their types as columns of changes."""

SECTION_CHANGES: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("topic_id", pa.binary(16), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32()),
        pa.field("operation", pa.string(), nullable=False),
        pa.field("is_summarized", pa.bool_(), nullable=False),
        *(pa.field(f"{when}_{name}", type) for when in ("before", "after") for name, type in STATE_FIELDS),
    ]
)
"""By (offset, topic_id, partition). `partition` is null for the topic itself, which is created or removed and has no
state except its name. `operation`: created (all `before_` null), changed, removed (all `after_` null); the removal of a
topic removes each of its partitions at the same offset. `is_summarized`: found by comparing the state with a snapshot
that replaced it; the offset is that of the snapshot's last record, and there may have been several changes.
"""


_NONE: Final = SECTION_CHANGES.empty_table()


def no_changes() -> pa.Table:
    """Return an empty table of changes."""
    return _NONE
