"""Changes of topics and partitions as rows of the tables, column by column because there may be millions."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from protocol.primitives import Uuid, uuid_to_text
from spark_jobs.metadata.section_changes import STATE_FIELDS
from spark_jobs.metadata_tables.schemas import CHANGES, TABLES

REMOVED: Final = "removed"
_CHANGED: Final = "changed"
_MICROSECONDS: Final = 1000
_DIRECTORIES: Final = "directories"


def tables_of_section(table: pa.Table) -> dict[str, pa.Table]:
    """Return the tables for rows of SECTION_CHANGES, in order and without empty ones."""
    if not len(table):
        return {}
    (changes,) = table.combine_chunks().to_batches()
    ids = _id_texts(changes.column("topic_id"))
    of_topic = pc.is_null(changes.column("partition"))
    found = {
        CHANGES: _changes(changes, ids),
        "topics": _topics(changes, ids, of_topic),
        "partitions": _partitions(changes, ids, pc.invert(of_topic)),
    }
    return {name: table for name, table in found.items() if len(table)}


def _changes(changes: pa.RecordBatch, ids: pa.Array) -> pa.Table:
    partition = changes.column("partition")
    name = changes.column("topic")
    number = pc.binary_join_element_wise(name, pc.cast(partition, pa.string()), "-")
    before, after = _documents(changes)
    columns = {
        "offset": changes.column("offset"),
        "epoch": changes.column("epoch"),
        "time": _times(changes),
        "entity_type": pc.if_else(pc.is_null(partition), "topic", "partition"),
        "entity": pc.coalesce(number, name),
        "topic_id": ids,
        "topic": name,
        "partition": partition,
        "operation": changes.column("operation"),
        "before": before,
        "after": after,
        "is_summarized": changes.column("is_summarized"),
    }
    return _table(CHANGES, columns)


def _topics(changes: pa.RecordBatch, ids: pa.Array, mine: pa.Array) -> pa.Table:
    columns = {**_versions(changes), "topic_id": ids, "topic": changes.column("topic")}
    return _table("topics", columns).filter(mine)


def _partitions(changes: pa.RecordBatch, ids: pa.Array, mine: pa.Array) -> pa.Table:
    state = {name: changes.column(f"after_{name}") for name, _ in STATE_FIELDS}
    state[_DIRECTORIES] = _lists_of_ids(state[_DIRECTORIES])
    names = {
        "topic_id": ids,
        "topic": changes.column("topic"),
        "partition": pc.coalesce(changes.column("partition"), -1),
    }
    return _table("partitions", {**_versions(changes), **names, **state}).filter(mine)


def _versions(changes: pa.RecordBatch) -> dict[str, pa.Array]:
    return {
        "from_offset": changes.column("offset"),
        "epoch": changes.column("epoch"),
        "time": _times(changes),
        "removed": pc.equal(changes.column("operation"), REMOVED),
    }


def _table(name: str, columns: dict[str, pa.Array]) -> pa.Table:
    schema = TABLES[name]
    return pa.Table.from_arrays([pc.cast(columns[field.name], field.type) for field in schema], schema=schema)


def _times(changes: pa.RecordBatch) -> pa.Array:
    return pc.multiply(changes.column("timestamp_ms"), _MICROSECONDS).cast(TABLES[CHANGES].field("time").type)


# -- JSON --------------------------------------------------------------------------------------------------------------


def _documents(changes: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """Return the JSON before and after: the fields that differ, or all non-empty fields of a created or removed
    entity.
    """
    is_change = pc.equal(changes.column("operation"), _CHANGED)
    before: list[pa.Array] = []
    after: list[pa.Array] = []
    for name, _ in STATE_FIELDS:
        old, new = (_json_values(name, changes.column(f"{when}_{name}")) for when in ("before", "after"))
        is_same = pc.and_(is_change, pc.fill_null(pc.equal(old, new), fill_value=False))
        before.append(_named(name, old, is_same))
        after.append(_named(name, new, is_same))
    partition = pc.is_valid(changes.column("partition"))
    has_before = pc.and_(partition, pc.not_equal(changes.column("operation"), "created"))
    has_after = pc.and_(partition, pc.not_equal(changes.column("operation"), REMOVED))
    return _object(before, has_before), _object(after, has_after)


def _named(name: str, values: pa.Array, left_out: pa.Array) -> pa.Array:
    """Return `"name":value,`, or an empty text for an omitted field or an absent value."""
    named = pc.binary_join_element_wise(f'"{name}":', values, ",", "")
    return pc.if_else(left_out, "", pc.coalesce(named, ""))


def _object(fields: list[pa.Array], wanted: pa.Array) -> pa.Array:
    inner = pc.utf8_rtrim(pc.binary_join_element_wise(*fields, ""), ",")
    whole = pc.binary_join_element_wise("{", inner, "}", "")
    return pc.if_else(wanted, whole, pa.scalar(None, pa.string()))


def _json_values(name: str, values: pa.Array) -> pa.Array:
    """Return the values as JSON text; null without state."""
    if not pa.types.is_list(values.type):
        return values.cast(pa.string())
    if name == _DIRECTORIES:
        quoted = pc.binary_join_element_wise('"', _id_texts(values.values), '"', "")
        items = pa.ListArray.from_arrays(values.offsets, quoted, mask=pc.is_null(values))
    else:
        items = values.cast(pa.list_(pa.string()))
    return pc.binary_join_element_wise("[", pc.binary_join(items, ","), "]", "")


# -- ids ---------------------------------------------------------------------------------------------------------------


def _lists_of_ids(lists: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(lists.offsets, _id_texts(lists.values), mask=pc.is_null(lists))


def _id_texts(ids: pa.Array) -> pa.Array:
    """Return ids as Kafka prints them, converting each distinct id once."""
    encoded = ids.dictionary_encode()
    texts = pa.array(_texts(encoded.dictionary.to_pylist()), pa.string())
    return texts.take(encoded.indices)


def _texts(ids: Iterable[bytes]) -> list[str]:
    return [_text(each) for each in ids]


@lru_cache(maxsize=65_536)
def _text(id: bytes) -> str:
    return uuid_to_text(Uuid(id))
