"""Remote segments of one partition as rows of bytes: about 80 bytes each, instead of 700 as objects.

A row number identifies a segment while it is in the table, and may identify another one later. Rows are found by
segment id through an open-addressing hash table; ids are random and serve as their own hash.
"""

import struct
from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid
from storage.tiered.segment_metadata import (
    RemoteSegment,
    RemoteSegmentId,
    SegmentEpoch,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)

_ROW: Final = struct.Struct("<16sqqqqiiiBB")
"""Id, start and end offset, highest timestamp, time of the last event, size, broker, first epoch, state, flags."""
_ID: Final = struct.Struct("<16s")
_OFFSETS: Final = struct.Struct("<16xqq")
_MAX_TIMESTAMP: Final = struct.Struct("<q")
_MAX_TIMESTAMP_AT: Final = 32
_EVENT_TIME: Final = struct.Struct("<q")
_EVENT_TIME_AT: Final = 40
_BROKER: Final = struct.Struct("<i")
_BROKER_AT: Final = 52
_PLAIN_EPOCH: Final = struct.Struct("<i")
_EPOCH_AT: Final = 56
_STATE_AT: Final = 60
_FLAGS_AT: Final = 61
_ID_BYTES: Final = 16
_PLAIN: Final = struct.Struct("<16xqq16xi4xiBB")
"""Start and end offset, size, first epoch, state, flags."""
_HOME: Final = struct.Struct(f">12xI{_FLAGS_AT - 16}xB")
"""The last four bytes of an id, a sufficient hash for fewer than 2^32 slots; flags."""
_LAST_EVENT: Final = struct.Struct("<qii")
"""Time of the last event, size, broker."""

_TXN_INDEX_EMPTY: Final = 1
_HAS_CUSTOM: Final = 2
_HAS_EPOCHS: Final = 4  # more than one
_IS_COMPACTED: Final = 8
_IS_FREE: Final = 128

_EMPTY: Final = -1
_SLOTS_MIN: Final = 8
_STATES: Final = tuple(SegmentState)


PlainFacts: TypeAlias = tuple[int, int, int, int, int, int, LeaderEpoch, bool]
"""Start and end offset, highest timestamp, time of the event, size, broker, epoch, whether nothing was aborted."""


class TableColumns(NamedTuple):
    """All columns of a `SegmentTable`, for a snapshot; not a copy."""

    rows: bytearray
    slots: "array[int]"
    custom: dict[int, bytes]
    epochs: dict[int, tuple[SegmentEpoch, ...]]
    compacted: dict[int, int]


class SegmentTable:
    """Table of segments; look-ups take any row that `add` returned and `remove` did not take back."""

    __slots__ = ("_compacted", "_count", "_custom", "_epochs", "_free", "_partition", "_rows", "_slots")

    def __init__(self, partition: TopicIdPartition, columns: TableColumns | None = None) -> None:
        """Restore or create a table. Raises ValueError for inconsistent columns."""
        self._partition = partition
        empty = TableColumns(bytearray(), array("i", [_EMPTY]) * _SLOTS_MIN, {}, {}, {})
        self._rows, self._slots, self._custom, self._epochs, self._compacted = columns or empty
        if len(self._rows) % _ROW.size or len(self._slots) & (len(self._slots) - 1):
            raise ValueError(f"{len(self._rows)} bytes of rows and {len(self._slots)} slots are no table")
        flags = self._rows[_FLAGS_AT :: _ROW.size]
        self._free = [row for row, flag in enumerate(flags) if flag & _IS_FREE]
        self._count = len(flags) - len(self._free)

    def columns(self) -> TableColumns:
        return TableColumns(self._rows, self._slots, self._custom, self._epochs, self._compacted)

    def __len__(self) -> int:
        return self._count

    def rows(self) -> Iterator[int]:
        """Iterate over the rows of all segments in arbitrary order."""
        for row, flags in enumerate(self._rows[_FLAGS_AT :: _ROW.size]):
            if not flags & _IS_FREE:
                yield row

    @property
    def row_count(self) -> int:
        """Upper bound of all row numbers, exclusive."""
        return len(self._rows) // _ROW.size

    def has(self, row: int) -> bool:
        """Whether a row stands for a segment."""
        return row < self.row_count and not self._rows[row * _ROW.size + _FLAGS_AT] & _IS_FREE

    def find(self, segment_id: Uuid) -> int | None:
        """Return the row of a segment."""
        row = self._slots[self._slot(segment_id)]
        return None if row == _EMPTY else row

    def segment(self, row: int) -> RemoteSegment:
        """Return the segment of a row as an object."""
        segment_id, start, end, max_timestamp, event, size, broker, epoch, state, flags = _ROW.unpack_from(
            self._rows, row * _ROW.size
        )
        return RemoteSegment(
            id=RemoteSegmentId(self._partition, segment_id),
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=max_timestamp,
            broker_id=broker,
            event_timestamp_ms=event,
            size_bytes=size,
            leader_epochs=self._epochs[row] if flags & _HAS_EPOCHS else (SegmentEpoch(epoch, start),),
            state=_STATES[state],
            custom_metadata=self._custom[row] if flags & _HAS_CUSTOM else None,
            txn_index_empty=bool(flags & _TXN_INDEX_EMPTY),
            compacted_to=self._compacted[row] if flags & _IS_COMPACTED else None,
        )

    def state(self, row: int) -> SegmentState:
        return _STATES[self._rows[row * _ROW.size + _STATE_AT]]

    def _id_of(self, row: int) -> Uuid:
        return Uuid(_ID.unpack_from(self._rows, row * _ROW.size)[0])

    def offsets(self, row: int) -> tuple[int, int]:
        """Return the first and last offset of a row."""
        start, end = _OFFSETS.unpack_from(self._rows, row * _ROW.size)
        return start, end

    def epochs(self, row: int) -> tuple[SegmentEpoch, ...]:
        begin = row * _ROW.size
        if self._rows[begin + _FLAGS_AT] & _HAS_EPOCHS:
            return self._epochs[row]
        epoch, start = _PLAIN_EPOCH.unpack_from(self._rows, begin + _EPOCH_AT)[0], self.offsets(row)[0]
        return (SegmentEpoch(epoch, start),)

    def has_txn_index(self, row: int) -> bool:
        return not self._rows[row * _ROW.size + _FLAGS_AT] & _TXN_INDEX_EMPTY

    def is_compacted(self, row: int) -> bool:
        return bool(self._rows[row * _ROW.size + _FLAGS_AT] & _IS_COMPACTED)

    def compacted_to(self, row: int) -> int | None:
        return self._compacted[row] if self.is_compacted(row) else None

    def max_timestamp_ms(self, row: int) -> int:
        found: int = _MAX_TIMESTAMP.unpack_from(self._rows, row * _ROW.size + _MAX_TIMESTAMP_AT)[0]
        return found

    def add(self, segment: RemoteSegment) -> int:
        """Add a new segment and return its row. Raises struct.error for a number that a record cannot hold."""
        row = self._free[-1] if self._free else len(self._rows) // _ROW.size
        packed = self._pack(segment)
        if self._free:
            self._free.pop()
            self._rows[row * _ROW.size : (row + 1) * _ROW.size] = packed
        else:
            self._rows += packed
        self._keep_rest(row, segment)
        self._count += 1
        if self._count * 3 > len(self._slots) * 2:
            self._rehash(len(self._slots) * 2)
        else:
            self._slots[self._slot(segment.id.id)] = row
        return row

    def append(self, segment: RemoteSegment) -> None:
        """Append a segment to a table that is filled by this method alone; ids cannot be looked up in it."""
        self._keep_rest(len(self._rows) // _ROW.size, segment)
        self._rows += self._pack(segment)
        self._count += 1

    def add_plain(
        self,
        segment_id: bytes,
        start: int,
        end: int,
        max_timestamp_ms: int,
        event_timestamp_ms: int,
        size_bytes: int,
        broker_id: int,
        epoch: LeaderEpoch,
        txn_index_empty: bool,
    ) -> int | None:
        """Add a segment with one epoch and no rare fields; None, without effect, if it is known already.

        Four times as fast as `add`: most events that a starting node reads are of this kind.
        """
        at = self._slot(segment_id)
        if self._slots[at] != _EMPTY:
            return None
        packed = _ROW.pack(
            segment_id,
            start,
            end,
            max_timestamp_ms,
            event_timestamp_ms,
            size_bytes,
            broker_id,
            epoch,
            SegmentState.COPY_STARTED,
            _TXN_INDEX_EMPTY if txn_index_empty else 0,
        )
        if self._free:
            row = self._free.pop()
            self._rows[row * _ROW.size : (row + 1) * _ROW.size] = packed
        else:
            row = len(self._rows) // _ROW.size
            self._rows += packed
        self._slots[at] = row
        self._count += 1
        if self._count * 3 > len(self._slots) * 2:
            self._rehash(len(self._slots) * 2)
        return row

    def finish_plain(
        self, segment_id: bytes, event_timestamp_ms: int, broker_id: int
    ) -> tuple[int, LeaderEpoch, int, int, bool] | None:
        """Move a plain segment from COPY_STARTED to COPY_FINISHED; return its row, epoch, start and end offset, and
        whether it has aborted transactions. Return None, without effect, for any other segment.
        """
        row = self._slots[self._slot(segment_id)]
        if row == _EMPTY:
            return None
        begin = row * _ROW.size
        start, end, size_bytes, epoch, state, flags = _PLAIN.unpack_from(self._rows, begin)
        if state != SegmentState.COPY_STARTED or flags & (_HAS_EPOCHS | _IS_COMPACTED):
            return None
        _LAST_EVENT.pack_into(self._rows, begin + _EVENT_TIME_AT, event_timestamp_ms, size_bytes, broker_id)
        self._rows[begin + _STATE_AT] = SegmentState.COPY_FINISHED
        return row, epoch, start, end, not flags & _TXN_INDEX_EMPTY

    def replace(self, row: int, segment: RemoteSegment) -> None:
        """Replace a row by the same segment after an event."""
        self._rows[row * _ROW.size : (row + 1) * _ROW.size] = self._pack(segment)
        self._forget_rest(row)
        self._keep_rest(row, segment)

    def update(self, row: int, update: SegmentUpdate) -> None:
        """Apply `RemoteSegment.updated` in place."""
        begin = row * _ROW.size
        _EVENT_TIME.pack_into(self._rows, begin + _EVENT_TIME_AT, update.event_timestamp_ms)
        _BROKER.pack_into(self._rows, begin + _BROKER_AT, update.broker_id)
        self._rows[begin + _STATE_AT] = update.state
        if update.custom_metadata is not None:
            self._rows[begin + _FLAGS_AT] |= _HAS_CUSTOM
            self._custom[row] = update.custom_metadata

    def remove(self, row: int) -> None:
        """Remove a segment."""
        self._vacate(self._slot(self._id_of(row)))
        self._rows[row * _ROW.size + _FLAGS_AT] = _IS_FREE
        self._forget_rest(row)
        self._free.append(row)
        self._count -= 1

    def _pack(self, segment: RemoteSegment) -> bytes:
        flags = _TXN_INDEX_EMPTY if segment.txn_index_empty else 0
        if segment.custom_metadata is not None:
            flags |= _HAS_CUSTOM
        if not _is_plain(segment):
            flags |= _HAS_EPOCHS
        if segment.is_compacted:
            flags |= _IS_COMPACTED
        return _ROW.pack(
            segment.id.id,
            segment.start_offset,
            segment.end_offset,
            segment.max_timestamp_ms,
            segment.event_timestamp_ms,
            segment.size_bytes,
            segment.broker_id,
            segment.leader_epochs[0].epoch,
            segment.state,
            flags,
        )

    def _keep_rest(self, row: int, segment: RemoteSegment) -> None:
        """Store the fields that have no place in the row."""
        if segment.custom_metadata is not None:
            self._custom[row] = segment.custom_metadata
        if not _is_plain(segment):
            self._epochs[row] = segment.leader_epochs
        if segment.compacted_to is not None:
            self._compacted[row] = segment.compacted_to

    def _forget_rest(self, row: int) -> None:
        self._custom.pop(row, None)
        self._epochs.pop(row, None)
        self._compacted.pop(row, None)

    # ---- slots

    def _slot(self, segment_id: bytes) -> int:
        """Return the slot of an id, or the slot to put it in."""
        slots, rows = self._slots, self._rows
        mask = len(slots) - 1
        at = int.from_bytes(segment_id, "big") & mask
        while (row := slots[at]) != _EMPTY:
            begin = row * _ROW.size
            if rows[begin : begin + _ID_BYTES] == segment_id:
                break
            at = (at + 1) & mask
        return at

    def _vacate(self, hole: int) -> None:
        """Empty a slot, and move up later entries of its probe sequence."""
        slots = self._slots
        mask = len(slots) - 1
        at = hole
        while (row := slots[at := (at + 1) & mask]) != _EMPTY:
            home = int.from_bytes(self._id_of(row), "big") & mask
            if (at - home) & mask >= (at - hole) & mask:
                slots[hole] = row
                hole = at
        slots[hole] = _EMPTY

    def _rehash(self, size: int) -> None:
        """Rebuild the hash table with `size` slots; about 10 milliseconds for 50,000 rows."""
        slots = self._slots = array("i", [_EMPTY]) * size
        mask = size - 1
        for row, (home, flags) in enumerate(_HOME.iter_unpack(self._rows)):
            if flags & _IS_FREE:
                continue
            at = home & mask
            while slots[at] != _EMPTY:
                at = (at + 1) & mask
            slots[at] = row


def _is_plain(segment: RemoteSegment) -> bool:
    epochs = segment.leader_epochs
    return len(epochs) == 1 and epochs[0].start_offset == segment.start_offset
