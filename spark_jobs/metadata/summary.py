"""The summary of a run of rows that a job needs before the fold, small enough to be collected from many workers."""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import ClearElrRecord, NoOpRecord, RemoveTopicRecord, TopicRecord
from protocol.records.control import ControlType, control_batch
from protocol.records.quorum_control import ControlState, control_records, read_control_state
from spark_jobs.metadata.byte_columns import Bools, Ints, booleans, numbers, strings_of
from spark_jobs.metadata.frame_heads import require_known
from spark_jobs.metadata.log_rows import ALL_SECTIONS, FROM_LOG, FROM_SNAPSHOT, NO_SECTION, REGISTRY, TOPIC_SECTIONS
from spark_jobs.metadata.transactions import MARKERS, TransactionMarker

NO_EPOCH: Final = LeaderEpoch(-1)


class ControlRow(NamedTuple):
    """A control record: its offset, type (a number, for unknown types too), value, and origin."""

    offset: int
    type: int
    value: bytes
    origin: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of rows: `end` is the offset after their last batch, `epoch` and `timestamp_ms` belong to it (-1
    without rows).

    `records` and `frame_bytes` count the data records from the log and the bytes of their frames. `sections` have rows
    to fold, including REGISTRY; all sections with a snapshot. `snapshot_end` is the end offset of the snapshot among
    the rows, with its epoch and the timestamp of the last record before it, or -1. Control rows and markers are in
    order of offsets once merged.
    """

    end: int = -1
    epoch: LeaderEpoch = NO_EPOCH
    timestamp_ms: int = -1
    records: int = 0
    frame_bytes: int = 0
    sections: tuple[int, ...] = ()
    control: tuple[ControlRow, ...] = ()
    markers: tuple[TransactionMarker, ...] = ()
    snapshot_end: int = -1
    snapshot_epoch: LeaderEpoch = NO_EPOCH
    snapshot_timestamp_ms: int = -1

    def to_json(self) -> bytes:
        """Encode the summary for a row from a worker to the driver."""
        control = [(row.offset, row.type, base64.b64encode(row.value).decode(), row.origin) for row in self.control]
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields | {"control": control}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "Summary":
        fields: dict[str, Any] = json.loads(data)
        return cls(
            **fields
            | {
                "sections": tuple(fields["sections"]),
                "control": tuple(
                    ControlRow(offset, type, base64.b64decode(value), origin)
                    for offset, type, value, origin in fields["control"]
                ),
                "markers": tuple(TransactionMarker(*each) for each in fields["markers"]),
            }
        )


def summarize(rows: pa.Table | pa.RecordBatch) -> Summary:
    """Summarize LOG_ROWS. Raises UnknownRecord for the first unknown record."""
    if len(rows) == 0:
        return Summary()
    columns = _Columns.of(rows)
    data = ~columns.control
    require_known(columns.keys[data], columns.versions[data], columns.offsets[data])
    counted = data & (columns.origins == FROM_LOG)
    frames = strings_of(rows.column("frame"))
    markers = np.flatnonzero(data & np.isin(columns.keys, MARKERS)).tolist()
    end, epoch, timestamp_ms = columns.newest(np.ones(len(rows), np.bool_))
    snapshot_end, snapshot_epoch, snapshot_timestamp_ms = columns.newest(columns.origins == FROM_SNAPSHOT)
    return Summary(
        end=end,
        epoch=LeaderEpoch(epoch),
        timestamp_ms=timestamp_ms,
        records=int(counted.sum()),
        frame_bytes=int(frames.lengths[counted].sum()),
        sections=ALL_SECTIONS if snapshot_end >= 0 else _touched(columns.sections[data], columns.keys[data]),
        control=tuple(
            ControlRow(int(columns.offsets[row]), int(columns.keys[row]), frames.value(row), int(columns.origins[row]))
            for row in np.flatnonzero(columns.control).tolist()
        ),
        markers=tuple(TransactionMarker(int(columns.offsets[row]), int(columns.keys[row])) for row in markers),
        snapshot_end=snapshot_end,
        snapshot_epoch=LeaderEpoch(snapshot_epoch),
        snapshot_timestamp_ms=snapshot_timestamp_ms,
    )


def merge(summaries: Iterable[Summary]) -> Summary:
    """Merge summaries given in any order."""
    parts = [each for each in summaries if each.end >= 0]
    if not parts:
        return Summary()
    snapshot = max(parts, key=lambda each: each.snapshot_end)
    return replace(
        max(parts, key=lambda each: each.end),
        records=sum(each.records for each in parts),
        frame_bytes=sum(each.frame_bytes for each in parts),
        sections=tuple(sorted({section for each in parts for section in each.sections})),
        control=tuple(sorted((row for each in parts for row in each.control), key=lambda row: row.offset)),
        markers=tuple(sorted(marker for each in parts for marker in each.markers)),
        snapshot_end=snapshot.snapshot_end,
        snapshot_epoch=snapshot.snapshot_epoch,
        snapshot_timestamp_ms=snapshot.snapshot_timestamp_ms,
    )


def control_after(before: ControlState | None, rows: Sequence[ControlRow], *, start: int = 0) -> ControlState | None:
    """Return the control state after `rows`, in order of offsets, following the state before `start`.

    The control records of a snapshot replace the state. Raises MalformedRecords.
    """
    snapshot = max((row.offset for row in rows if row.origin == FROM_SNAPSHOT and row.offset >= start), default=-1)
    state = before if snapshot < 0 else None
    first = max(start, snapshot + 1)
    for row in rows:
        is_of_snapshot = row.origin == FROM_SNAPSHOT and row.offset == snapshot
        is_known = row.type in (ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS)
        if is_known and (is_of_snapshot or (row.origin == FROM_LOG and row.offset >= first)):
            state = read_control_state(control_batch([(ControlType(row.type), row.value)], 0), 0, state)
    return state


def control_to_bytes(control: ControlState | None) -> bytes:
    """Encode a control state, to be stored beside a state; no bytes for None."""
    return b"" if control is None else control_batch(control_records(control), 0)


def control_from_bytes(data: bytes) -> ControlState | None:
    """Decode a control state. Raises MalformedRecords."""
    return read_control_state(data, 0, None) if data else None


class _Columns(NamedTuple):
    """The columns of rows as numbers."""

    offsets: Ints
    epochs: Ints
    times: Ints
    ends: Ints
    control: Bools
    keys: Ints
    versions: Ints
    sections: Ints
    origins: Ints

    @classmethod
    def of(cls, rows: pa.Table | pa.RecordBatch) -> "_Columns":
        names = ("offset", "epoch", "timestamp_ms", "batch_end", "key", "version", "section", "origin")
        offsets, epochs, times, ends, *rest = (numbers(rows.column(name)) for name in names)
        return cls(offsets, epochs, times, ends, booleans(rows.column("is_control")), *rest)

    def newest(self, mine: Bools) -> tuple[int, int, int]:
        """Return (end, epoch, timestamp) of the last batch of some rows."""
        rows = np.flatnonzero(mine)
        if not len(rows):
            return -1, -1, -1
        last = rows[np.argmax(self.offsets[rows])]
        return int(self.ends[last]), int(self.epochs[last]), int(self.times[last])


def _touched(sections: Ints, keys: Ints) -> tuple[int, ...]:
    """Return the sections that rows concern; the periodic NoOpRecords and transaction markers concern none."""
    touched = set(np.unique(sections[~np.isin(keys, (NoOpRecord.API_KEY, *MARKERS))]).tolist())
    if (keys == ClearElrRecord.API_KEY).any():
        touched.update(range(TOPIC_SECTIONS))
    if NO_SECTION in touched or np.isin(keys, (TopicRecord.API_KEY, RemoveTopicRecord.API_KEY)).any():
        touched.add(REGISTRY)
    return tuple(sorted(touched - {NO_SECTION}))
