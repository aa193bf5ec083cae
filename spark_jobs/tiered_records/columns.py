"""Arrow columns from the positions of record fields. Arrow copies the values of variable length, one column at a
time.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.metadata.byte_columns import Bools, Bytes, Ints
from spark_jobs.tiered_records.record_fields import Fields, Spans
from spark_jobs.tiered_records.schema import RECORDS
from storage.tiered.segment_metadata import TopicIdPartition

_US: Final = 1000
_MOST_MS: Final = (2**63 - 1) // _US
"""A producer's timestamp may exceed the range of microseconds."""


class SelectedRecords(NamedTuple):
    """Selected records by column: the batch, and the start of the key and the end of each record in the pool."""

    batches: Ints
    offsets: Ints
    times_ms: Ints
    is_appended: Bools
    epochs: Ints
    keys_at: Ints
    stops: Ints

    def where(self, rows: Bools) -> "SelectedRecords":
        """Return a selection of the records."""
        return SelectedRecords(
            self.batches[rows],
            self.offsets[rows],
            self.times_ms[rows],
            self.is_appended[rows],
            self.epochs[rows],
            self.keys_at[rows],
            self.stops[rows],
        )


class _Source(NamedTuple):
    partition: TopicIdPartition
    pool: Bytes
    found: SelectedRecords
    fields: Fields


class Columns:
    """Builds Arrow batches of one partition. `schema` has some of the columns of RECORDS."""

    def __init__(self, partition: TopicIdPartition, schema: pa.Schema) -> None:
        self._partition = partition
        self._schema = schema

    def batch(self, pool: Bytes, found: SelectedRecords, fields: Fields) -> pa.RecordBatch:
        """Return the records whose fields lie in `pool`."""
        source = _Source(self._partition, pool, found, fields)
        arrays = [_COLUMNS[name](source) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _times(source: _Source) -> pa.Array:
    times = np.clip(source.found.times_ms, -_MOST_MS, _MOST_MS) * _US
    return pa.array(times).view(RECORDS.field("timestamp").type)


def _headers(source: _Source) -> pa.Array:
    fields = source.fields
    type = RECORDS.field("headers").type
    bounds = np.zeros(len(fields.counts) + 1, np.int32)
    np.cumsum(fields.counts, out=bounds[1:])
    keys = _text(_strings(source.pool, fields.header_keys))
    pairs = pa.StructArray.from_arrays(
        [keys, _strings(source.pool, fields.header_values)], fields=list(type.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(bounds), pairs, type=type)


def _text(keys: pa.Array) -> pa.Array:
    """Return names of headers, with replacement characters for invalid UTF-8, as Apache Kafka's consumers do."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


def _strings(pool: Bytes, spans: Spans) -> pa.Array:
    """Return a binary column of byte strings in ascending positions: with the bytes between them they already form an
    array, of which every second string is taken.
    """
    count = len(spans.starts)
    if not count:
        return pa.array([], pa.binary())
    begin = int(spans.starts[0])
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = spans.starts - begin
    bounds[1::2] = spans.ends - begin
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(pool[begin:])]
    both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    taken = both.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
    is_null = spans.lengths < 0
    if not is_null.any():
        return taken
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [validity, *taken.buffers()[1:]])


def _ints(values: npt.NDArray[Any], type: type[np.signedinteger[Any]]) -> pa.Array:
    return pa.array(values.astype(type))


_COLUMNS: Final[dict[str, Callable[[_Source], pa.Array]]] = {
    "topic": lambda source: pa.repeat(source.partition.topic, len(source.found.offsets)),
    "partition": lambda source: pa.repeat(pa.scalar(source.partition.partition, pa.int32()), len(source.found.offsets)),
    "offset": lambda source: _ints(source.found.offsets, np.int64),
    "timestamp": _times,
    "timestampType": lambda source: _ints(source.found.is_appended, np.int32),
    "leaderEpoch": lambda source: _ints(source.found.epochs, np.int32),
    "key": lambda source: _strings(source.pool, source.fields.keys),
    "value": lambda source: _strings(source.pool, source.fields.values),
    "headers": _headers,
}
