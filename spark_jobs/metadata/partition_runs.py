"""Records of partitions sorted into runs, one for each partition, and the state after every record.

A run is the sequence of events of one partition, in order of offsets, after its row in the state if it has one. The
value of a field after a record is that of the last record of the run with the field; a PartitionRecord has all fields.
Each field is therefore represented by a source, the row of its value, which a running maximum finds for all runs at
once. Epochs are counted in the same way. `broker.metadata.image.partition.PartitionRegistration.merge` defines the
effect of a record.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from broker.metadata.image.partition import NO_LEADER, PartitionRegistration
from broker.metadata.image.records import InvalidMetadata
from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import PartitionChangeRecord
from protocol.primitives import Uuid
from spark_jobs.metadata.byte_columns import Bools, Ints
from spark_jobs.metadata.partition_columns import PartitionColumns
from spark_jobs.metadata.section_state import LISTS
from spark_jobs.metadata.state_columns import StateColumns

NOTHING: Final = -1
"""The source of an absent value."""
_ELR: Final = ("elr", "last_known_elr")


@dataclass(slots=True)
class Events:
    """Events of partitions: one for each record, and for each partition that a ClearElrRecord may concern.

    `groups` identify partitions, as those of the state do; `rows` are the rows of the log. `records` are places in the
    columns, NOTHING for a ClearElrRecord.
    """

    groups: Ints
    rows: Ints
    records: Ints


class PartitionRuns:
    """The events in the order of their partitions, and the source of each field after each event.

    `values` holds the records' values, then those of the state, then an absent one. `sources[field]` are rows of it.
    `base` is the row of the state before a run, NOTHING for a new partition. Raises InvalidMetadata for a change of a
    partition that does not exist, and for an unknown recovery state.
    """

    def __init__(self, events: Events, columns: PartitionColumns, state: StateColumns, state_groups: Ints) -> None:
        order = _order(events)
        self.groups, self.rows = events.groups[order], events.rows[order]
        self.is_clear = events.records[order] < 0
        self._place = np.arange(len(order))
        self._find_runs(state_groups)
        records = np.maximum(events.records[order], 0)
        self._whole = columns.whole[records] & ~self.is_clear
        self.values = _values(columns, records, self.is_clear).with_rows(state)
        self._blank = [name for name in LISTS if name != "directories" and self.values.is_blank(name)]
        self._present = _presence(columns, records, self.is_clear, self._blank)
        self._check(columns.leader_recovery_state.values[records])
        self.sources = {name: self._sources(present) for name, present in self._present.items()}
        self.sources |= dict.fromkeys(self._blank, self.sources["leader"])
        self._move_directories()
        self.is_effective = ~self.is_clear | self._had_elr()
        self._count_epochs(columns, records)

    @property
    def ends(self) -> Ints:
        """Return the last event of each run."""
        return np.append(self.starts, len(self.groups))[1:] - 1

    def before(self, field: str, events: Ints) -> Ints:
        """Return the sources of a field before these events; NOTHING without a partition."""
        first = self._place[events] == self._run_start[events]
        earlier = np.where(first, self._base_source[events], self.sources[field][np.maximum(events - 1, 0)])
        return np.where(self.existed[events], earlier, NOTHING)

    def _find_runs(self, state_groups: Ints) -> None:
        count = len(self.groups)
        is_start = np.ones(count, np.bool_)
        is_start[1:] = self.groups[1:] != self.groups[:-1]
        self.starts = np.flatnonzero(is_start)
        run = np.cumsum(is_start) - 1
        self._run_start = self.starts[run]
        at = np.searchsorted(state_groups, self.groups[self.starts])
        found = np.zeros(len(self.starts), np.bool_)
        inside = at < len(state_groups)
        found[inside] = state_groups[at[inside]] == self.groups[self.starts][inside]
        self.base = np.where(found, at, NOTHING)
        self._base_source = np.where(found, count + at, NOTHING)[run]

    def _check(self, recovery: Ints) -> None:
        last_whole = self._last(self._whole)
        has_base = self._base_source != NOTHING
        self.exists = has_base | (last_whole >= self._run_start)
        self.existed = has_base.copy()
        self.existed[1:] |= self.exists[:-1] & (self._run_start[1:] == self._run_start[:-1])
        if (~self.is_clear & ~self.exists).any():
            raise InvalidMetadata("a record changes a partition that does not exist")
        stated = self._present["leader_recovery_state"]
        if (stated & ((recovery < 0) | (recovery > 1))).any():
            raise InvalidMetadata("a record sets an unknown recovery state of a partition")

    def _last(self, present: Bools) -> Ints:
        """Return, for each event, the last event up to it with `present`, in any run."""
        last: Ints = np.maximum.accumulate(np.where(present, self._place, NOTHING))
        return last

    def _sources(self, present: Bools) -> Ints:
        last = self._last(present)
        return np.where(last >= self._run_start, last, self._base_source)

    def _had_elr(self) -> Bools:
        had = np.zeros(len(self.groups), np.bool_)
        clears = np.flatnonzero(self.is_clear & self.existed)
        for name in _ELR:
            had[clears] |= self.values.lengths[name][self.before(name, clears)] > 0
        return had

    def _count_epochs(self, columns: PartitionColumns, records: Ints) -> None:
        """Compute the epochs: those of the last whole record or of the state, plus the increments since."""
        last_whole = self._last(self._whole)
        changes = ~self._whole & self.is_effective
        for name, whole, counted in (
            ("leader_epoch", columns.leader_epoch, changes & self._present["leader"]),
            ("partition_epoch", columns.partition_epoch, changes),
        ):
            values = self.values.numbers[name]
            values[: len(records)] = whole[records]
            begun = np.where(last_whole >= self._run_start, last_whole, self._base_source)
            total = np.cumsum(counted)
            start = self._run_start
            upto = np.where(last_whole >= start, total[np.maximum(last_whole, 0)], total[start] - counted[start])
            values[: len(records)] = values[begun] + total - upto
            self.sources[name] = self._place

    def _move_directories(self) -> None:
        """Assign directories to new replicas of records of older metadata versions; remaining replicas keep theirs."""
        if "replicas" in self._blank:
            return
        odd = self._present["replicas"] & ~self._present["directories"]
        moved: dict[int, bytes] = {}
        candidates = np.flatnonzero(odd)
        before = self.before("replicas", candidates).tolist()
        changed = [
            event
            for event, source in zip(candidates.tolist(), before, strict=True)
            if self.values.list_value("replicas", event) != self.values.list_value("replicas", source)
        ]
        if not changed:
            return
        self._present["directories"][changed] = True
        self.sources["directories"] = self._sources(self._present["directories"])
        for event in changed:
            moved[event] = self._moved(event, moved)
        self._put_directories(moved)

    def _moved(self, event: int, moved: dict[int, bytes]) -> bytes:
        at = np.array([event])
        source = int(self.before("directories", at)[0])
        directories = moved[source] if source in moved else self.values.list_value("directories", source)
        old = _registration(self.values.list_value("replicas", int(self.before("replicas", at)[0])), directories)
        change = PartitionChangeRecord(replicas=list(_ids(self.values.list_value("replicas", event))))
        try:
            return b"".join(old.merge(change).directories)
        except IndexError:
            raise InvalidMetadata("a partition has fewer directories than replicas") from None

    def _put_directories(self, moved: dict[int, bytes]) -> None:
        position = len(self.values.pool)
        for event, raw in moved.items():
            self.values.starts["directories"][event] = position
            self.values.lengths["directories"][event] = len(raw)
            position += len(raw)
        added = np.frombuffer(b"".join(moved.values()), np.uint8)
        self.values.pool = np.concatenate((self.values.pool, added))


def _order(events: Events) -> Ints:
    """Return the order by group and row. Events are sorted by row, except for ClearElrRecords at the end."""
    if (events.rows[1:] >= events.rows[:-1]).all():
        return np.argsort(events.groups, kind="stable")
    return np.lexsort((events.rows, events.groups))


def _presence(columns: PartitionColumns, records: Ints, is_clear: Bools, blank: Sequence[str]) -> dict[str, Bools]:
    """Return which events have a value for each field, except for lists that are empty everywhere."""
    present = {name: columns.lists[name].present[records] & ~is_clear for name in LISTS if name not in blank}
    for name in set(_ELR).difference(blank):
        present[name] |= is_clear
    present["leader"] = columns.leader.present[records] & ~is_clear
    present["leader_recovery_state"] = columns.leader_recovery_state.present[records] & ~is_clear
    return present


def _values(columns: PartitionColumns, records: Ints, is_clear: Bools) -> StateColumns:
    numbers = {
        "leader": columns.leader.values[records],
        "leader_epoch": np.zeros(len(records), np.int64),
        "partition_epoch": np.zeros(len(records), np.int64),
        "leader_recovery_state": columns.leader_recovery_state.values[records],
    }
    starts = {name: columns.lists[name].starts[records] for name in LISTS}
    lengths = {name: np.where(is_clear, 0, columns.lists[name].lengths[records]) for name in LISTS}
    return StateColumns(numbers, starts, lengths, columns.pool)


def _registration(replicas: bytes, directories: bytes) -> PartitionRegistration:
    ids = tuple(Uuid(directories[at : at + 16]) for at in range(0, len(directories), 16))
    return PartitionRegistration(_ids(replicas), (), NO_LEADER, LeaderEpoch(0), 0, ids)


def _ids(raw: bytes) -> tuple[int, ...]:
    return tuple(np.frombuffer(raw, ">i4").tolist())
