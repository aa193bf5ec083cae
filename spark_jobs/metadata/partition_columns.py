"""PartitionRecords and PartitionChangeRecords as columns: one field of all records at a time.

Every record is a lane, and all lanes take the same step at once: the fixed fields, then the first tagged field of each,
then the second. Records of unusual form, which are damaged or have lists of more than 126 elements, leave their lane
and go through the node's decoder. Lists stay in the frames.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from broker.metadata.image.records import decode_record
from protocol.errors import DecodeError
from protocol.messages.metadata_records import PartitionChangeRecord, PartitionRecord
from spark_jobs.metadata.byte_columns import Bools, Bytes, Ints, Strings, integers_at
from spark_jobs.metadata.frame_heads import FrameHeads, MalformedLog
from spark_jobs.metadata.section_state import LISTS

PARTITION: Final = PartitionRecord.API_KEY
CHANGE: Final = PartitionChangeRecord.API_KEY

_NO_LEADER_CHANGE: Final = -2
_NO_RECOVERY_CHANGE: Final = -1
_ID_SIZE: Final = 16
_LONG: Final = 0x80
"""A varint byte from this value on is followed by another."""


class _Tag(NamedTuple):
    """A tagged field: its name, its first version, and the bytes of an element, 0 for a number."""

    field: str
    since: int
    element: int


_CHANGE_TAGS: Final[Mapping[int, _Tag]] = {
    0: _Tag("isr", 0, 4),
    1: _Tag("leader", 0, 0),
    2: _Tag("replicas", 0, 4),
    3: _Tag("removing_replicas", 0, 4),
    4: _Tag("adding_replicas", 0, 4),
    5: _Tag("leader_recovery_state", 0, 0),
    6: _Tag("elr", 2, 4),
    7: _Tag("last_known_elr", 2, 4),
    8: _Tag("directories", 1, 16),
}
_PARTITION_TAGS: Final[Mapping[int, _Tag]] = {
    0: _Tag("leader_recovery_state", 0, 0),
    1: _Tag("elr", 2, 4),
    2: _Tag("last_known_elr", 2, 4),
}
_MESSAGE_FIELDS: Final = {name: "eligible_leader_replicas" if name == "elr" else name for name in LISTS}


@dataclass(slots=True)
class ListColumn:
    """A list of each record by position in a pool, and whether the record has one (which may be empty)."""

    starts: Ints
    lengths: Ints
    present: Bools


@dataclass(slots=True)
class NumberColumn:
    """A number of each record, and whether the record has one."""

    values: Ints
    present: Bools


@dataclass(slots=True)
class PartitionColumns:
    """Records of partitions. `pool` holds topic ids and lists; `ids` is the position of each topic id.

    `whole`: the record is a PartitionRecord, which has every field. Only such records have `leader_epoch` and
    `partition_epoch`.
    """

    pool: Bytes
    ids: Ints
    partitions: Ints
    whole: Bools
    leader: NumberColumn
    leader_recovery_state: NumberColumn
    leader_epoch: Ints
    partition_epoch: Ints
    lists: dict[str, ListColumn]

    def topic_ids(self) -> Strings:
        return Strings(self.pool, self.ids, np.full(len(self.ids), _ID_SIZE, np.int64))


def partition_columns(frames: Strings, heads: FrameHeads, offsets: Ints) -> PartitionColumns:
    """Return the records in these frames, which are all of the two types and of known versions.

    Raises MalformedLog, with the offset in the log, for a record that does not parse.
    """
    lanes = _Lanes(frames, heads)
    changes, partitions = np.flatnonzero(heads.keys == CHANGE), np.flatnonzero(heads.keys == PARTITION)
    if len(changes):
        lanes.read_changes(changes)
    if len(partitions):
        lanes.read_partitions(partitions)
    lanes.read_odd(frames, offsets)
    return lanes.columns


def no_columns() -> PartitionColumns:
    """Return one lane of a record without fields."""
    none = np.zeros(1, np.int64)
    return _Lanes(Strings(np.zeros(1, np.uint8), none, none), FrameHeads(none - 1, none, none)).columns


class _Lanes:
    """The lanes with the current position of each."""

    def __init__(self, frames: Strings, heads: FrameHeads) -> None:
        count = len(heads.keys)
        self._pool = frames.pool if len(frames.pool) else np.zeros(1, np.uint8)
        self._ends = frames.starts + frames.lengths
        self._versions = heads.versions
        self._at = heads.bodies.copy()
        self._odd = np.zeros(count, np.bool_)
        whole = heads.keys == PARTITION
        self.columns = PartitionColumns(
            pool=self._pool,
            ids=heads.bodies + 4,
            partitions=np.zeros(count, np.int64),
            whole=whole,
            leader=NumberColumn(np.zeros(count, np.int64), whole.copy()),
            leader_recovery_state=NumberColumn(np.zeros(count, np.int64), whole.copy()),
            leader_epoch=np.zeros(count, np.int64),
            partition_epoch=np.zeros(count, np.int64),
            lists={name: _no_lists(count, whole) for name in LISTS},
        )

    def read_changes(self, lanes: Ints) -> None:
        lanes = self._read_key(lanes)
        self._read_tags(lanes, _CHANGE_TAGS)

    def read_partitions(self, lanes: Ints) -> None:
        lanes = self._read_key(lanes)
        for name in ("replicas", "isr", "removing_replicas", "adding_replicas"):
            lanes = self._read_list(lanes, name, 4)
        lanes = self._with_bytes(lanes, 12)
        columns = self.columns
        for values in (columns.leader.values, columns.leader_epoch, columns.partition_epoch):
            values[lanes] = integers_at(self._pool, self._at[lanes])
            self._at[lanes] += 4
        with_directories = self._versions[lanes] >= 1
        read = self._read_list(lanes[with_directories], "directories", _ID_SIZE)
        lanes = read if with_directories.all() else np.concatenate((lanes[~with_directories], read))
        self._read_tags(lanes, _PARTITION_TAGS)

    def read_odd(self, frames: Strings, offsets: Ints) -> None:
        """Read the records that left their lanes, one by one."""
        odd = np.flatnonzero(self._odd).tolist()
        extra, position = [], len(self._pool)
        for lane in odd:
            try:
                record = decode_record(frames.value(lane))
            except DecodeError as error:
                raise MalformedLog(f"the record at offset {offsets[lane]} does not parse: {error}") from error
            assert isinstance(record, PartitionRecord | PartitionChangeRecord)
            for raw in self._set(lane, record, position):
                extra.append(raw)
                position += len(raw)
        if extra:
            added = np.frombuffer(b"".join(extra), np.uint8)
            self.columns.pool = np.concatenate((self._pool, added))

    def _read_key(self, lanes: Ints) -> Ints:
        """Read the index of the partition and the topic id, which come first."""
        lanes = self._with_bytes(lanes, 4 + _ID_SIZE)
        self.columns.partitions[lanes] = integers_at(self._pool, self._at[lanes])
        self._at[lanes] += 4 + _ID_SIZE
        return lanes

    def _read_list(self, lanes: Ints, name: str, element: int) -> Ints:
        """Read a list that is always present."""
        lanes = self._with_bytes(lanes, 1)
        counts = self._pool[self._at[lanes]].astype(np.int64)
        lengths = (counts - 1) * element
        fits = (counts > 0) & (counts < _LONG) & (self._at[lanes] + 1 + lengths <= self._ends[lanes])
        if not fits.all():
            self._odd[lanes[~fits]] = True
            lanes, lengths = lanes[fits], lengths[fits]
        column = self.columns.lists[name]
        column.starts[lanes] = self._at[lanes] + 1
        column.lengths[lanes] = lengths
        self._at[lanes] += 1 + lengths
        return lanes

    def _read_tags(self, lanes: Ints, tags: Mapping[int, _Tag]) -> None:
        """Read the tagged fields at the end of a record."""
        lanes = self._with_bytes(lanes, 1)
        left = self._pool[self._at[lanes]].astype(np.int64)
        self._odd[lanes[left >= _LONG]] = True
        self._at[lanes] += 1
        while True:
            done = (left == 0) | self._odd[lanes]
            finished = lanes[done]
            self._odd[finished] |= self._at[finished] != self._ends[finished]
            lanes, left = lanes[~done], left[~done] - 1
            if not len(lanes):
                return
            self._read_tag(lanes, tags)

    def _read_tag(self, lanes: Ints, tags: Mapping[int, _Tag]) -> None:
        """Read one tagged field of each lane."""
        at, ends, last = self._at[lanes], self._ends[lanes], len(self._pool) - 1
        numbers = self._pool[np.minimum(at, last)]
        sizes = self._pool[np.minimum(at + 1, last)].astype(np.int64)
        self._at[lanes] = at + 2 + sizes
        bad = (numbers >= _LONG) | (sizes >= _LONG) | (at + 2 + sizes > ends)
        self._odd[lanes[bad]] = True
        present = np.bincount(numbers[~bad], minlength=1)
        for number in np.flatnonzero(present).tolist():
            tag = tags.get(number)
            if tag is not None:
                mine = np.flatnonzero((numbers == number) & ~bad)
                self._take_tag(lanes[mine], at[mine] + 2, sizes[mine], tag)

    def _take_tag(self, lanes: Ints, at: Ints, sizes: Ints, tag: _Tag) -> None:
        known = self._versions[lanes] >= tag.since
        if not known.all():  # a tag above this version is unknown
            lanes, at, sizes = lanes[known], at[known], sizes[known]
        if tag.element:
            self._take_list(lanes, at, sizes, tag)
        elif tag.field == "leader":
            self._take_leader(lanes, at, sizes)
        else:
            self._take_recovery(lanes, at, sizes)

    def _take_list(self, lanes: Ints, at: Ints, sizes: Ints, tag: _Tag) -> None:
        counts = self._pool[np.minimum(at, len(self._pool) - 1)].astype(np.int64)
        lengths = np.maximum(counts - 1, 0) * tag.element
        self._odd[lanes[(sizes != lengths + 1) | (counts >= _LONG)]] = True
        column = self.columns.lists[tag.field]
        column.starts[lanes] = at + 1
        column.lengths[lanes] = lengths
        column.present[lanes] = (counts > 0) | self.columns.whole[lanes]

    def _take_leader(self, lanes: Ints, at: Ints, sizes: Ints) -> None:
        lanes, at = self._of_size(lanes, at, sizes, 4)
        leaders = integers_at(self._pool, at)
        self.columns.leader.values[lanes] = leaders
        self.columns.leader.present[lanes] = leaders != _NO_LEADER_CHANGE

    def _take_recovery(self, lanes: Ints, at: Ints, sizes: Ints) -> None:
        lanes, at = self._of_size(lanes, at, sizes, 1)
        states = self._pool[at].astype(np.int8).astype(np.int64)
        column = self.columns.leader_recovery_state
        column.values[lanes] = states
        column.present[lanes] = (states != _NO_RECOVERY_CHANGE) | self.columns.whole[lanes]

    def _of_size(self, lanes: Ints, at: Ints, sizes: Ints, size: int) -> tuple[Ints, Ints]:
        right = sizes == size
        if right.all():
            return lanes, at
        self._odd[lanes[~right]] = True
        return lanes[right], at[right]

    def _with_bytes(self, lanes: Ints, count: int) -> Ints:
        """Return the lanes with at least `count` bytes left."""
        enough = self._at[lanes] + count <= self._ends[lanes]
        if enough.all():
            return lanes
        self._odd[lanes[~enough]] = True
        return lanes[enough]

    def _set(self, lane: int, record: PartitionRecord | PartitionChangeRecord, position: int) -> list[bytes]:
        """Put a decoded record into its lane; return its lists as bytes, which will lie at `position`."""
        columns, raws = self.columns, []
        columns.partitions[lane] = record.partition_id
        columns.leader.values[lane] = record.leader
        columns.leader_recovery_state.values[lane] = record.leader_recovery_state
        if isinstance(record, PartitionRecord):
            columns.leader_epoch[lane] = record.leader_epoch
            columns.partition_epoch[lane] = record.partition_epoch
        else:
            columns.leader.present[lane] = record.leader != _NO_LEADER_CHANGE
            columns.leader_recovery_state.present[lane] = record.leader_recovery_state != _NO_RECOVERY_CHANGE
        for name, column in columns.lists.items():
            value = getattr(record, _MESSAGE_FIELDS[name])
            raw = b"".join(
                each if isinstance(each, bytes) else each.to_bytes(4, "big", signed=True) for each in value or ()
            )
            column.starts[lane], column.lengths[lane] = position, len(raw)
            column.present[lane] = value is not None or columns.whole[lane]
            position += len(raw)
            raws.append(raw)
        return raws


def _no_lists(count: int, whole: Bools) -> ListColumn:
    return ListColumn(np.zeros(count, np.int64), np.zeros(count, np.int64), whole.copy())
