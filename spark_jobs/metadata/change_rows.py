"""Changes in numpy columns, and their conversion to rows of SECTION_CHANGES."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.metadata.byte_columns import Bools, Ints, Strings, fixed_array, int_array, numbers
from spark_jobs.metadata.section_changes import SECTION_CHANGES, STATE_FIELDS
from spark_jobs.metadata.section_state import LISTS, NUMBERS, TOPIC_ROW
from spark_jobs.metadata.state_columns import FIELDS, StateColumns
from spark_jobs.metadata.topic_lives import ID_SIZE, Lives, TopicReplay

NOTHING: Final = -1
"""The source of an absent value."""
CREATED: Final = 0
CHANGED: Final = 1
REMOVED: Final = 2
_OPERATIONS: Final = pa.array(["created", "changed", "removed"], pa.string())


@dataclass(slots=True)
class ChangeRows:
    """Changes of topics and partitions in numpy columns.

    `lives` and `partitions` (TOPIC_ROW for a topic) identify the object, `places` the rows of the log. `before` and
    `after` are the sources of each field, NOTHING for an absent value.
    """

    places: Ints
    lives: Ints
    partitions: Ints
    operations: Ints
    before: Mapping[str, Ints]
    after: Mapping[str, Ints]

    def __len__(self) -> int:
        return len(self.places)

    @property
    def obsolete(self) -> int:
        """Count the changes that changed or removed an existing object."""
        return int((self.operations != CREATED).sum())

    @classmethod
    def of_topics(cls, lives: Ints, places: Ints, operation: int) -> "ChangeRows":
        none = nothing(len(lives))
        return cls(places, lives, np.full(len(lives), TOPIC_ROW), np.full(len(lives), operation), none, none)

    @classmethod
    def joined(cls, parts: Sequence["ChangeRows"]) -> "ChangeRows":
        return cls(
            np.concatenate([part.places for part in parts]),
            np.concatenate([part.lives for part in parts]),
            np.concatenate([part.partitions for part in parts]),
            np.concatenate([part.operations for part in parts]),
            {name: np.concatenate([part.before[name] for part in parts]) for name in FIELDS},
            {name: np.concatenate([part.after[name] for part in parts]) for name in FIELDS},
        )


def nothing(count: int) -> dict[str, Ints]:
    """Return sources for `count` rows without state."""
    return dict.fromkeys(FIELDS, np.full(count, NOTHING, np.int64))


@dataclass(slots=True)
class LogPositions:
    """Offset, epoch and timestamp of rows of the log."""

    offsets: Ints
    epochs: Ints
    times: Ints


def changes_table(
    rows: ChangeRows, values: StateColumns, lives: Lives, places: LogPositions, *, is_summarized: bool = False
) -> pa.Table:
    """Return the rows of SECTION_CHANGES in order."""
    ranks, offsets = lives.ranks(), places.offsets[rows.places]
    order = np.lexsort((rows.partitions, ranks[rows.lives], offsets))
    at, of, partitions = rows.places[order], rows.lives[order], rows.partitions[order]
    columns = [
        pa.array(offsets[order]),
        int_array(places.epochs[at], pa.int32()),
        pa.array(places.times[at]),
        lives.id_column(of),
        lives.names.take(pa.array(of)),
        int_array(partitions, pa.int32(), partitions == TOPIC_ROW),
        _OPERATIONS.take(pa.array(rows.operations[order])),
        pa.array(np.full(len(order), is_summarized)),
    ]
    for sources in (rows.before, rows.after):
        columns += [_typed(values, name, sources[name][order]) for name, _ in STATE_FIELDS]
    return pa.Table.from_arrays(columns, schema=SECTION_CHANGES)


def difference(before: pa.Table, after: pa.Table) -> tuple[ChangeRows, StateColumns, Lives]:
    """Return the differences between two states, all at place 0, with the values and topics for their table."""
    topics = [TopicReplay(state).lives() for state in (before, after)]
    lives = _of_both(topics)
    number = {id: each for each, id in enumerate(lives.id_list())}
    old, new = _keys(before, topics[0], number), _keys(after, topics[1], number)
    values = StateColumns.of(before).with_rows(StateColumns.of(after))
    at = np.minimum(np.searchsorted(new, old), max(len(new) - 1, 0))
    kept = new[at] == old if len(new) else np.zeros(len(old), np.bool_)
    is_new = np.ones(len(new), np.bool_)
    is_new[at[kept]] = False
    same, other = np.flatnonzero(kept), len(old) + at[kept]
    differs = _differs(values, same, other)
    gone, come = np.flatnonzero(~kept), np.flatnonzero(is_new)
    parts = [
        _rows(old[same[differs]], CHANGED, same[differs], other[differs]),
        _rows(old[gone], REMOVED, gone, np.full(len(gone), NOTHING)),
        _rows(new[come], CREATED, np.full(len(come), NOTHING), len(old) + come),
    ]
    return ChangeRows.joined(parts), values, lives


def _of_both(topics: Sequence[Lives]) -> Lives:
    """Return the topics of either state by id, all alive."""
    names: dict[bytes, str] = {}
    for lives in topics:
        names.update(zip(lives.id_list(), lives.names.to_pylist(), strict=True))
    return Lives.of_topics(sorted(names.items()))


def _keys(state: pa.Table, lives: Lives, number: Mapping[bytes, int]) -> Ints:
    """Return ascending keys by topic and partition, which are comparable between the two states."""
    partitions = numbers(state.column("partition"))
    topics = np.array([number[id] for id in lives.id_list()], np.int64)
    keys: Ints = (topics[np.cumsum(partitions == TOPIC_ROW) - 1] << 32) + partitions + 1
    return keys


def _differs(values: StateColumns, one: Ints, other: Ints) -> Bools:
    differs = np.zeros(len(one), np.bool_)
    for name in NUMBERS:
        differs |= values.numbers[name][one] != values.numbers[name][other]
    for name in LISTS:
        unequal = pc.not_equal(values.list(name, one).array(), values.list(name, other).array())
        differs |= unequal.to_numpy(zero_copy_only=False)
    return differs


def _rows(keys: Ints, operation: int, before: Ints, after: Ints) -> ChangeRows:
    partitions = (keys & 0xFFFFFFFF) - 1
    is_topic = partitions == TOPIC_ROW
    before, after = np.where(is_topic, NOTHING, before), np.where(is_topic, NOTHING, after)
    operations = np.full(len(keys), operation)
    return ChangeRows(
        np.zeros(len(keys), np.int64),
        keys >> 32,
        partitions,
        operations,
        dict.fromkeys(FIELDS, before),
        dict.fromkeys(FIELDS, after),
    )


def _typed(values: StateColumns, name: str, sources: Ints) -> pa.Array:
    """Return a column of states, with null for an absent value."""
    nulls = sources == NOTHING
    if name in NUMBERS:
        return values.number(name, sources, nulls)
    lists = values.list(name, sources)
    width = ID_SIZE if name == "directories" else 4
    return _list_array(lists, width, nulls)


def _list_array(lists: Strings, width: int, nulls: Bools) -> pa.Array:
    lengths = np.where(nulls, 0, lists.lengths)
    data = lists._replace(lengths=lengths).joined()
    bounds = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths // width, out=bounds[1:])
    if width == ID_SIZE:
        items, kind = fixed_array(data, ID_SIZE), dict(STATE_FIELDS)["directories"]
    else:
        items, kind = pa.array(data.view(">i4").astype(np.int32)), dict(STATE_FIELDS)["replicas"]
    return pa.ListArray.from_arrays(pa.array(bounds), items, type=kind, mask=pa.array(nulls))
