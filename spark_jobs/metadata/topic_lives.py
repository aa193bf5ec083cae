"""The topics of a section during a fold, with the rows of their creation and removal.

A topic id is never reused while the topic exists, but nothing forbids it afterwards. Partitions therefore belong not to
an id but to a *life*: from a TopicRecord, or from the state, to a RemoveTopicRecord. Topics may be many and records of
them few, so the state stays in columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from broker.metadata.image.records import InvalidMetadata
from protocol.primitives import Uuid, uuid_to_text
from spark_jobs.metadata.byte_columns import Bools, Bytes, Ints, Strings, fixed_array, flat, numbers, strings_of
from spark_jobs.metadata.section_state import TOPIC_ROW

ID_SIZE: Final = 16
NEVER: Final = 1 << 31
"""A row beyond every fold."""
FROM_STATE: Final = -1
"""The birth row of a topic from the state."""


@dataclass(frozen=True)
class Lives:
    """Lives by number: concatenated ids, names, and the rows of `births` and `deaths` (FROM_STATE, NEVER without a
    row).
    """

    ids: Bytes
    names: pa.Array
    births: Ints
    deaths: Ints

    @classmethod
    def of_topics(cls, topics: Sequence[tuple[bytes, str]]) -> "Lives":
        """Return the lives of topics, given by id and name, that always existed."""
        ids, names = zip(*topics, strict=True) if topics else ((), ())
        count = len(ids)
        raw = np.frombuffer(b"".join(ids), np.uint8)
        return cls(raw, pa.array(names, pa.string()), np.full(count, FROM_STATE), np.full(count, NEVER))

    def __len__(self) -> int:
        return len(self.births)

    def alive(self) -> Bools:
        """Return a mask of the lives that have not ended."""
        alive: Bools = self.deaths == NEVER
        return alive

    def at(self, row: int) -> Ints:
        """Return the topics that exist at a row."""
        return np.flatnonzero((self.births < row) & (row < self.deaths))

    def id_list(self) -> list[bytes]:
        raw = self.ids.tobytes()
        return [raw[start : start + ID_SIZE] for start in range(0, len(raw), ID_SIZE)]

    def id_column(self, lives: Ints) -> pa.Array:
        """Return the column of topic ids for rows of these lives."""
        return fixed_array(self.ids.view(f"V{ID_SIZE}")[lives].view(np.uint8), ID_SIZE)

    def ranks(self) -> Ints:
        """Return the rank of each life in the order of ids."""
        words = self.ids.view(">u8").astype(np.uint64).reshape(-1, 2)
        order = np.lexsort((words[:, 1], words[:, 0]))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        return ranks

    @cached_property
    def by_name(self) -> dict[str, list[int]]:
        """Return the successive lives with each name."""
        found: dict[str, list[int]] = {}
        for number, name in enumerate(self.names.to_pylist()):
            found.setdefault(name, []).append(number)
        return found

    def of_rows(self, ids: Strings, rows: Ints) -> Ints:
        """Return the life of each row with a topic id. Raises InvalidMetadata if the topic does not exist at that
        row.
        """
        codes, known = self._codes(ids)
        keys = (known << 32) + self.births + 1
        order = np.argsort(keys, kind="stable")
        at = np.searchsorted(keys[order], (codes << 32) + rows + 1, side="right") - 1
        lives = order[np.maximum(at, 0)] if len(order) else np.zeros(len(rows), np.int64)
        lost = (at < 0) if len(order) else np.ones(len(rows), np.bool_)
        if len(order):
            lost |= (known[lives] != codes) | (rows >= self.deaths[lives])
        if lost.any():
            id = Uuid(ids.value(int(np.flatnonzero(lost)[0])))
            raise InvalidMetadata(f"a record names topic id {uuid_to_text(id)}, which does not exist")
        return lives

    def _codes(self, ids: Strings) -> tuple[Ints, Ints]:
        """Return a number for each id of rows, and of lives."""
        all_ids = pa.concat_arrays([fixed_array(self.ids, ID_SIZE), fixed_array(ids.joined(), ID_SIZE)])
        codes = numbers(all_ids.dictionary_encode().indices)
        return codes[len(self) :], codes[: len(self)]


class TopicReplay:
    """Creations and removals after a state, whose topics come first in their order."""

    def __init__(self, state: pa.Table) -> None:
        rows = np.flatnonzero(numbers(state.column("partition")) == TOPIC_ROW)
        self._ids = strings_of(state.column("topic_id")).take(rows).joined()
        self._names = flat(state.column("name")).take(pa.array(rows))
        self.known = len(rows)
        """Number of topics from the state."""
        self._new: list[tuple[bytes, str, int]] = []
        self._deaths: dict[int, int] = {}

    def create(self, id: Uuid, name: str, row: int) -> None:
        """Begin a life. Raises InvalidMetadata if a topic with that id exists."""
        if id in self._alive:
            raise InvalidMetadata(f"a record creates topic {name} with an id that is in use")
        self._alive[bytes(id)] = self.known + len(self._new)
        self._new.append((bytes(id), name, row))

    def remove(self, id: Uuid, row: int) -> None:
        """End a life. Raises InvalidMetadata if no topic with that id exists."""
        number = self._alive.pop(bytes(id), None)
        if number is None:
            raise InvalidMetadata(f"a record removes topic {uuid_to_text(id)}, which does not exist")
        self._deaths[number] = row

    def lives(self) -> Lives:
        """Return the resulting lives."""
        known = Lives(self._ids, self._names, np.full(self.known, FROM_STATE), np.full(self.known, NEVER))
        if self._new:
            ids, names, births = zip(*self._new, strict=True)
            known = Lives(
                np.concatenate((known.ids, np.frombuffer(b"".join(ids), np.uint8))),
                pa.concat_arrays([known.names, pa.array(names, pa.string())]),
                np.concatenate((known.births, np.array(births, np.int64))),
                np.full(self.known + len(ids), NEVER),
            )
        known.deaths[list(self._deaths)] = list(self._deaths.values())
        return known

    @cached_property
    def _alive(self) -> dict[bytes, int]:
        """Return the numbers of existing topics by id. Most steps neither create nor remove topics."""
        raw = self._ids.tobytes()
        return {raw[ID_SIZE * number : ID_SIZE * (number + 1)]: number for number in range(self.known)}
