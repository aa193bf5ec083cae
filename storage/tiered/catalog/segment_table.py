"""The remote segments of one partition as rows of bytes: some 80 bytes for each, where objects would take 700.

A row number stands for a segment as long as it is in the table, and for another one later. Rows are found by segment id
through a table of slots with open addressing: ids are random, so they are their own hash.
"""

import struct
from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

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
"""The last bytes of an id, which are as good as all for fewer slots than they count; flags."""
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


PlainFacts: TypeAlias = tuple[int, int, int, int, int, int, int, bool]
"""Start and end offset, highest timestamp, time of the event, size, broker, epoch, whether nothing was aborted."""


class TableColumns(NamedTuple):
    """All there is in a `SegmentTable`, for a snapshot. Not a copy."""

    rows: bytearray
    slots: "array[int]"
    custom: dict[int, bytes]
    epochs: dict[int, tuple[SegmentEpoch, ...]]
    compacted: dict[int, int]


class SegmentTable:
    """Lookups by row number take any row that `add` returned and `remove` did not take back."""

    __slots__ = ("_compacted", "_count", "_custom", "_epochs", "_free", "_partition", "_rows", "_slots")

    def __init__(self, partition: TopicIdPartition, columns: TableColumns | None = None) -> None:
        """Raises ValueError for columns that do not fit together."""
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
        """Of all segments, in no order that means anything."""
        for row, flags in enumerate(self._rows[_FLAGS_AT :: _ROW.size]):
            if not flags & _IS_FREE:
                yield row

    @property
    def row_count(self) -> int:
        """All row numbers are below this."""
        return len(self._rows) // _ROW.size

    def has(self, row: int) -> bool:
        """Whether a row stands for a segment."""
        return row < self.row_count and not self._rows[row * _ROW.size + _FLAGS_AT] & _IS_FREE

    def find(self, segment_id: Uuid) -> int | None:
        """The row of a segment."""
        row = self._slots[self._slot(segment_id)]
        return None if row == _EMPTY else row

    def segment(self, row: int) -> RemoteSegment:
        """Everything."""
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

    def id_of(self, row: int) -> Uuid:
        return Uuid(_ID.unpack_from(self._rows, row * _ROW.size)[0])

    def offsets(self, row: int) -> tuple[int, int]:
        """First and last."""
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
        """The row of a segment that is new. Raises struct.error where a number is beyond what a record can hold."""
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
        """In the next row, of a table that has nothing but such segments: nobody can find them by their ids."""
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
        epoch: int,
        txn_index_empty: bool,
    ) -> int | None:
        """`add`, of a segment with one epoch and nothing that is rare; None, and nothing done, if it is known already.

        Four times as fast: what is read when a node starts is this, as a rule.
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
    ) -> tuple[int, int, int, int, bool] | None:
        """From COPY_STARTED to COPY_FINISHED, of a segment with one epoch that was not compacted: its row, epoch, start
        and end, and whether there are aborted transactions in it. None, and nothing done, for any other.
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
        """The same segment after an event."""
        self._rows[row * _ROW.size : (row + 1) * _ROW.size] = self._pack(segment)
        self._forget_rest(row)
        self._keep_rest(row, segment)

    def update(self, row: int, update: SegmentUpdate) -> None:
        """As `RemoteSegment.updated`, in place."""
        begin = row * _ROW.size
        _EVENT_TIME.pack_into(self._rows, begin + _EVENT_TIME_AT, update.event_timestamp_ms)
        _BROKER.pack_into(self._rows, begin + _BROKER_AT, update.broker_id)
        self._rows[begin + _STATE_AT] = update.state
        if update.custom_metadata is not None:
            self._rows[begin + _FLAGS_AT] |= _HAS_CUSTOM
            self._custom[row] = update.custom_metadata

    def remove(self, row: int) -> None:
        """Forget a segment."""
        self._vacate(self._slot(self.id_of(row)))
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
        """What has no place in the row."""
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
        """Where the id is, or would be put."""
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
        """Empty a slot, and move up what stands behind it only because the slot was taken."""
        slots = self._slots
        mask = len(slots) - 1
        at = hole
        while (row := slots[at := (at + 1) & mask]) != _EMPTY:
            home = int.from_bytes(self.id_of(row), "big") & mask
            if (at - home) & mask >= (at - hole) & mask:
                slots[hole] = row
                hole = at
        slots[hole] = _EMPTY

    def _rehash(self, size: int) -> None:
        """As `_slot` finds them: some 10 milliseconds for 50,000, which nobody may have to wait for more often."""
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
