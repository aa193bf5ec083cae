"""The tables and their columns."""

from typing import Final

import pyarrow as pa

_INTS: Final = pa.list_(pa.int32())
_TIME: Final = pa.timestamp("us", tz="UTC")
_ENDPOINT: Final = pa.struct(
    [
        pa.field("name", pa.string()),
        pa.field("host", pa.string()),
        pa.field("port", pa.int32()),
        pa.field("security_protocol", pa.string()),
    ]
)


def _required(name: str, type: pa.DataType) -> pa.Field:
    return pa.field(name, type, nullable=False)


_WHERE: Final = (_required("epoch", pa.int32()), _required("time", _TIME))


def _history(*fields: pa.Field) -> pa.Schema:
    """Return the schema of the versions of an entity: `from_offset` is that of the record that set the version; the
    state is null in a row with `removed`.
    """
    return pa.schema([_required("from_offset", pa.int64()), *_WHERE, *fields, _required("removed", pa.bool_())])


CHANGES: Final = "changes"
TABLES: Final = {
    CHANGES: pa.schema(
        [
            _required("offset", pa.int64()),
            *_WHERE,
            _required("entity_type", pa.string()),
            _required("entity", pa.string()),
            pa.field("topic_id", pa.string()),
            pa.field("topic", pa.string()),
            pa.field("partition", pa.int32()),
            _required("operation", pa.string()),
            pa.field("before", pa.string()),
            pa.field("after", pa.string()),
            _required("is_summarized", pa.bool_()),
        ]
    ),
    "topics": _history(_required("topic_id", pa.string()), _required("topic", pa.string())),
    "partitions": _history(
        _required("topic_id", pa.string()),
        _required("topic", pa.string()),
        _required("partition", pa.int32()),
        pa.field("leader", pa.int32()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("partition_epoch", pa.int32()),
        pa.field("leader_recovery_state", pa.int8()),
        pa.field("replicas", _INTS),
        pa.field("isr", _INTS),
        pa.field("removing_replicas", _INTS),
        pa.field("adding_replicas", _INTS),
        pa.field("directories", pa.list_(pa.string())),
        pa.field("elr", _INTS),
        pa.field("last_known_elr", _INTS),
    ),
    "brokers": _history(
        _required("broker_id", pa.int32()),
        pa.field("broker_epoch", pa.int64()),
        pa.field("incarnation_id", pa.string()),
        pa.field("rack", pa.string()),
        pa.field("fenced", pa.bool_()),
        pa.field("in_controlled_shutdown", pa.bool_()),
        pa.field("endpoints", pa.list_(_ENDPOINT)),
        pa.field("directories", pa.list_(pa.string())),
    ),
    "configs": _history(
        _required("resource_type", pa.string()),
        _required("resource_name", pa.string()),
        _required("key", pa.string()),
        pa.field("value", pa.string()),
    ),
    "acls": _history(
        _required("acl_id", pa.string()),
        pa.field("resource_type", pa.string()),
        pa.field("resource_name", pa.string()),
        pa.field("pattern_type", pa.string()),
        pa.field("principal", pa.string()),
        pa.field("host", pa.string()),
        pa.field("operation", pa.string()),
        pa.field("permission_type", pa.string()),
    ),
    "quotas": _history(
        _required("entity", pa.string()), _required("key", pa.string()), pa.field("value", pa.float64())
    ),
    "features": _history(_required("feature", pa.string()), pa.field("level", pa.int16())),
}
"""In `changes`, `before` and `after` are JSON objects with the fields that differ, or all fields of a created or
removed entity; `is_summarized` marks a row for which intermediate records were no longer available, so that there may
have been more changes. The other tables never have several rows of one entity at one `from_offset`, because a record
changes an entity once. Ids are text as Kafka prints them; `time` is the timestamp of the record's batch, by the clock
of the controller that wrote it. As in Kafka, `leader` is -1 without a leader, and `leader_recovery_state` 1 after an
unclean election, until the leader has recovered.
"""

KEYS: Final = {
    "topics": ("topic_id",),
    "partitions": ("topic_id", "partition"),
    "brokers": ("broker_id",),
    "configs": ("resource_type", "resource_name", "key"),
    "acls": ("acl_id",),
    "quotas": ("entity", "key"),
    "features": ("feature",),
}
"""The columns that identify the entity of each history table."""
