"""One fold of a section: the rows of the log, in order, applied to a state."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from broker.metadata.image.records import InvalidMetadata, MetadataRecord, decode_record
from protocol.errors import DecodeError
from protocol.messages.metadata_records import ClearElrRecord, RemoveTopicRecord, TopicRecord
from spark_jobs.metadata.byte_columns import Bools, Ints, Strings, binary_array, int_array, numbers, strings_of
from spark_jobs.metadata.change_rows import CHANGED, CREATED, REMOVED, ChangeRows, LogPositions, nothing
from spark_jobs.metadata.frame_heads import FrameHeads, MalformedLog, frame_heads, require_known
from spark_jobs.metadata.log_rows import frames_of
from spark_jobs.metadata.partition_columns import CHANGE, PARTITION, PartitionColumns, no_columns, partition_columns
from spark_jobs.metadata.partition_runs import Events, PartitionRuns
from spark_jobs.metadata.section_state import SECTION_STATE, TOPIC_ROW
from spark_jobs.metadata.state_columns import FIELDS, StateColumns, state_columns
from spark_jobs.metadata.topic_lives import FROM_STATE, NEVER, Lives, TopicReplay
from spark_jobs.metadata.topic_records import topic_record

_LIFE_SHIFT: Final = 32
_PARTITION_MASK: Final = (1 << _LIFE_SHIFT) - 1
_IN_SNAPSHOTS: Final = (TopicRecord.API_KEY, PARTITION)


class SectionRows(NamedTuple):
    """Rows of one section, in order of offsets."""

    places: LogPositions
    origins: Ints
    frames: Strings
    heads: FrameHeads

    @classmethod
    def of(cls, rows: pa.Table) -> "SectionRows":
        """Read the heads of the rows. Raises UnknownRecord and MalformedLog."""
        names = ("offset", "epoch", "timestamp_ms", "origin")
        offsets, epochs, times, origins = (numbers(rows.column(name)) for name in names)
        frames = frames_of(rows)
        heads = frame_heads(frames, offsets)
        require_known(heads.keys, heads.versions, offsets)
        all_rows = cls(LogPositions(offsets, epochs, times), origins, frames, heads)
        return all_rows if (offsets[1:] >= offsets[:-1]).all() else all_rows.take(offsets.argsort(kind="stable"))

    def __len__(self) -> int:
        return len(self.origins)

    def take(self, rows: Ints | Bools) -> "SectionRows":
        places = LogPositions(self.places.offsets[rows], self.places.epochs[rows], self.places.times[rows])
        keys, versions, bodies = self.heads
        heads = FrameHeads(keys[rows], versions[rows], bodies[rows])
        return SectionRows(places, self.origins[rows], self.frames.take(rows), heads)

    def records(self, rows: Ints) -> Iterator[MetadataRecord]:
        """Yield some records, decoded by the node's decoder. Raises MalformedLog."""
        for row, frame, key in zip(
            rows.tolist(), self.frames.take(rows).to_list(), self.heads.keys[rows].tolist(), strict=True
        ):
            try:
                yield topic_record(frame) if key == TopicRecord.API_KEY else decode_record(frame)
            except DecodeError as error:
                offset = self.places.offsets[row]
                raise MalformedLog(f"the record at offset {offset} does not parse: {error}") from error


class _Clear(NamedTuple):
    """A ClearElrRecord of one topic, or of all topics if it names none."""

    row: int
    name: str


class SectionFold:
    """A state and the rows to apply to it. Raises MalformedLog, and InvalidMetadata for a record that contradicts the
    state.
    """

    def __init__(self, state: pa.Table, rows: SectionRows, *, is_snapshot: bool = False) -> None:
        self._before = state
        self._partitions = numbers(state.column("partition"))
        self._topics_of_state = np.cumsum(self._partitions == TOPIC_ROW) - 1
        self._rows = rows
        topics = TopicReplay(state)
        clears = self._replay(topics, is_snapshot)
        self._known, self._lives = topics.known, topics.lives()
        columns, events = self._read_partitions()
        groups = (self._topics_of_state << _LIFE_SHIFT) + self._partitions + 1
        old = StateColumns.of(state)
        events, columns = self._with_clears(clears, events, columns, old, groups)
        self._runs = PartitionRuns(events, columns, old, groups)
        self._is_alive = self._lives.alive()

    def state(self) -> pa.Table:
        """Return the state after the rows."""
        if not len(self._runs.groups) and self._is_alive.all() and len(self._lives) == self._known:
            return self._before
        lives, runs = self._lives, self._runs
        ends = runs.ends
        kept = np.flatnonzero(self._untouched() & self._is_alive[self._topics_of_state])
        ends = ends[runs.exists[ends] & self._is_alive[runs.groups[ends] >> _LIFE_SHIFT]]
        born = np.flatnonzero(self._is_alive[self._known :]) + self._known
        of = np.concatenate((self._topics_of_state[kept], runs.groups[ends] >> _LIFE_SHIFT, born))
        partitions = np.concatenate(
            (self._partitions[kept], (runs.groups[ends] & _PARTITION_MASK) - 1, np.full(len(born), TOPIC_ROW))
        )
        ranks = lives.ranks() if len(lives) > self._known else np.arange(len(lives))
        order = np.argsort((ranks[of] << _LIFE_SHIFT) + partitions + 1, kind="stable")
        kept_rows, none = len(runs.groups) + kept, np.full(len(born), -1)
        sources = _each_once(
            {name: runs.sources[name] for name in FIELDS},
            lambda after: np.concatenate((kept_rows, after[ends], none))[order],
        )
        of, partitions = of[order], partitions[order]
        is_partition = partitions != TOPIC_ROW
        columns = [
            lives.id_column(of),
            int_array(partitions, pa.int32()),
            _names(strings_of(lives.names).take(of[~is_partition]), is_partition),
            *state_columns(runs.values, sources, ~is_partition),
        ]
        return pa.Table.from_arrays(columns, schema=SECTION_STATE)

    def changes(self) -> ChangeRows:
        """Return every change that the rows made, for `changes_table` with `values`, `lives` and `places`."""
        births, deaths = self._lives.births, self._lives.deaths
        born, dead = np.flatnonzero(births != FROM_STATE), np.flatnonzero(deaths != NEVER)
        parts = [
            ChangeRows.of_topics(born, births[born], CREATED),
            self._changed_partitions(),
            *self._removed_partitions(deaths),
            ChangeRows.of_topics(dead, deaths[dead], REMOVED),
        ]
        return ChangeRows.joined(parts)

    @property
    def obsolete(self) -> int:
        """Count the records of a snapshot that the rows changed or removed, each time again."""
        runs, dead = self._runs, ~self._is_alive
        removed = (runs.exists[runs.ends] & dead[runs.groups[runs.ends] >> _LIFE_SHIFT]).sum()
        gone = (self._untouched() & dead[self._topics_of_state] & (self._partitions != TOPIC_ROW)).sum()
        return int((runs.existed & runs.is_effective).sum() + removed + gone + dead.sum())

    @property
    def values(self) -> StateColumns:
        return self._runs.values

    @property
    def lives(self) -> Lives:
        return self._lives

    def _replay(self, topics: TopicReplay, is_snapshot: bool) -> list[_Clear]:
        """Replay creations, removals and ClearElrRecords one by one."""
        keys = self._rows.heads.keys
        if is_snapshot and not np.isin(keys, _IN_SNAPSHOTS).all():
            wrong = int(keys[~np.isin(keys, _IN_SNAPSHOTS)][0])
            raise InvalidMetadata(f"a record of key {wrong} is not allowed in a snapshot")
        clears = []
        rows = np.flatnonzero((keys != PARTITION) & (keys != CHANGE))
        for row, record in zip(rows.tolist(), self._rows.records(rows), strict=True):
            match record:
                case TopicRecord():
                    topics.create(record.topic_id, record.name, FROM_STATE if is_snapshot else row)
                case RemoveTopicRecord():
                    topics.remove(record.topic_id, row)
                case ClearElrRecord():
                    clears.append(_Clear(row, record.topic_name))
                case _:
                    offset = self._rows.places.offsets[row]
                    raise InvalidMetadata(
                        f"a {type(record).__name__} at offset {offset} belongs to the registry, not to a topic section"
                    )
        return clears

    def _read_partitions(self) -> tuple[PartitionColumns, Events]:
        keys, versions, bodies = self._rows.heads
        rows = np.flatnonzero((keys == PARTITION) | (keys == CHANGE))
        heads = FrameHeads(keys[rows], versions[rows], bodies[rows])
        columns = partition_columns(self._rows.frames.take(rows), heads, self._rows.places.offsets[rows])
        if (columns.partitions < 0).any():
            raise InvalidMetadata("a record names a negative partition")
        lives = self._lives.of_rows(columns.topic_ids(), rows)
        return columns, Events((lives << _LIFE_SHIFT) + columns.partitions + 1, rows, np.arange(len(rows)))

    def _with_clears(
        self, clears: Sequence[_Clear], events: Events, columns: PartitionColumns, old: StateColumns, groups: Ints
    ) -> tuple[Events, PartitionColumns]:
        """Add an event for each ClearElrRecord and partition that may have eligible leaders at that point."""
        if not clears:
            return events, columns
        has_elr = (old.lengths["elr"] > 0) | (old.lengths["last_known_elr"] > 0)
        gets_elr = (columns.lists["elr"].lengths > 0) | (columns.lists["last_known_elr"].lengths > 0)
        candidates = np.unique(np.concatenate((groups[has_elr], events.groups[gets_elr])))
        parts = [events]
        for row, mine in self._cleared(clears, candidates) if len(candidates) else ():
            parts.append(Events(mine, np.full(len(mine), row), np.full(len(mine), -1)))
        joined = Events(
            np.concatenate([part.groups for part in parts]),
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.records for part in parts]),
        )
        return joined, columns if len(columns.ids) else no_columns()

    def _cleared(self, clears: Sequence[_Clear], candidates: Ints) -> Iterator[tuple[int, Ints]]:
        """Yield the row of each ClearElrRecord, and the candidates (ascending) that it concerns."""
        lives, topics = self._lives, candidates >> _LIFE_SHIFT
        for row, name in clears:
            if not name:
                yield row, candidates[np.isin(topics, lives.at(row))]
                continue
            for number in lives.by_name.get(name, ()):
                if lives.births[number] < row < lives.deaths[number]:
                    first, end = np.searchsorted(topics, (number, number + 1))
                    yield row, candidates[first:end]

    def _untouched(self) -> Bools:
        """Return the rows of the state without an event."""
        untouched = np.ones(len(self._partitions), np.bool_)
        base = self._runs.base
        untouched[base[base >= 0]] = False
        return untouched

    def _changed_partitions(self) -> ChangeRows:
        runs = self._runs
        events = np.flatnonzero(runs.is_effective)
        operations = np.where(runs.existed[events], CHANGED, CREATED)
        before = {name: runs.before(name, events) for name in FIELDS}
        after = {name: runs.sources[name][events] for name in FIELDS}
        return self._rows_of(runs.groups[events], runs.rows[events], operations, before, after)

    def _removed_partitions(self, deaths: Ints) -> list[ChangeRows]:
        """Return the removals of dead topics' partitions, as the last record left them, or as in the state."""
        runs = self._runs
        ends = runs.ends
        ends = ends[runs.exists[ends] & ~self._is_alive[runs.groups[ends] >> _LIFE_SHIFT]]
        gone = self._untouched() & ~self._is_alive[self._topics_of_state] & (self._partitions != TOPIC_ROW)
        rows = np.flatnonzero(gone)
        groups = (self._topics_of_state[rows] << _LIFE_SHIFT) + self._partitions[rows] + 1
        sources = (
            {name: runs.sources[name][ends] for name in FIELDS},
            dict.fromkeys(FIELDS, len(runs.groups) + rows),
        )
        return [
            self._rows_of(each, deaths[each >> _LIFE_SHIFT], np.full(len(each), REMOVED), before, nothing(len(each)))
            for each, before in zip((runs.groups[ends], groups), sources, strict=True)
        ]

    def _rows_of(
        self, groups: Ints, places: Ints, operations: Ints, before: dict[str, Ints], after: dict[str, Ints]
    ) -> ChangeRows:
        return ChangeRows(places, groups >> _LIFE_SHIFT, (groups & _PARTITION_MASK) - 1, operations, before, after)


def _each_once(columns: Mapping[str, Ints], change: Callable[[Ints], Ints]) -> dict[str, Ints]:
    """Apply `change` to the columns; identical columns stay identical objects."""
    changed = {id(column): change(column) for column in {id(each): each for each in columns.values()}.values()}
    return {name: changed[id(column)] for name, column in columns.items()}


def _names(names: Strings, nulls: Bools) -> pa.Array:
    """Return the column of names: one for each row that is not null."""
    lengths = np.zeros(len(nulls), np.int64)
    lengths[~nulls] = names.lengths
    return binary_array(names.joined(), lengths, pa.string(), nulls)
