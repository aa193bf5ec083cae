"""Topics of a section while rows are folded: which there are, from which row on, and up to which.

The id of a topic is never given out again while the topic lives, but nothing forbids it afterwards; so what partitions
belong to is not an id but a *life*: from a TopicRecord, or from the state, to a RemoveTopicRecord.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from broker.metadata.records import InvalidMetadata
from protocol.primitives import Uuid, uuid_to_text
from spark_jobs.metadata.byte_columns import Bools, Ints, Strings, fixed_array, numbers, strings_of
from spark_jobs.metadata.section_state import TOPIC_ROW

ID_SIZE: Final = 16
NEVER: Final = 1 << 31
"""A row that no fold reaches."""
FROM_STATE: Final = -1
"""The row of birth of a topic that was there before."""


@dataclass(slots=True)
class Life:
    """`birth` and `death` are rows; FROM_STATE and NEVER where there is none."""

    id: bytes
    name: str
    birth: int
    death: int = NEVER


def ranks_of(lives: Sequence[Life]) -> Ints:
    """Where each stands in the order of ids."""
    order = sorted(range(len(lives)), key=lambda number: lives[number].id)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def id_column(lives: Sequence[Life], numbers: Ints) -> pa.Array:
    """The column of topic ids for rows of these lives."""
    raw = np.frombuffer(b"".join(life.id for life in lives), f"V{ID_SIZE}")
    return fixed_array(raw[numbers].view(np.uint8), ID_SIZE)


class TopicLives:
    """Lives by number, those of the state first and in its order."""

    def __init__(self, state: pa.Table) -> None:
        rows = np.flatnonzero(numbers(state.column("partition")) == TOPIC_ROW)
        ids = strings_of(state.column("topic_id")).take(rows)
        names = state.column("name").take(pa.array(rows)).to_pylist()
        raw = ids.joined().tobytes()
        self.lives = [Life(raw[ID_SIZE * n : ID_SIZE * (n + 1)], name, FROM_STATE) for n, name in enumerate(names)]
        self.known = len(self.lives)
        """So many come from the state."""
        self._alive = {life.id: number for number, life in enumerate(self.lives)}

    def __len__(self) -> int:
        return len(self.lives)

    def create(self, id: Uuid, name: str, row: int) -> None:
        """Raises InvalidMetadata if a topic with that id lives."""
        if id in self._alive:
            raise InvalidMetadata(f"a record creates topic {name} with an id that is in use")
        self._alive[bytes(id)] = len(self.lives)
        self.lives.append(Life(bytes(id), name, row))

    def remove(self, id: Uuid, row: int) -> None:
        """Raises InvalidMetadata if no topic with that id lives."""
        number = self._alive.pop(bytes(id), None)
        if number is None:
            raise InvalidMetadata(f"a record removes topic {uuid_to_text(id)}, which does not exist")
        self.lives[number].death = row

    def at(self, row: int) -> Ints:
        """The topics that live at a row."""
        return np.flatnonzero((self.births() < row) & (row < self.deaths()))

    def by_name(self) -> dict[str, list[int]]:
        """The lives that had each name, one after the other."""
        found: dict[str, list[int]] = {}
        for number, life in enumerate(self.lives):
            found.setdefault(life.name, []).append(number)
        return found

    def of_rows(self, ids: Strings, rows: Ints) -> Ints:
        """To which life each row with a topic id belongs. Raises InvalidMetadata if the topic does not live then."""
        codes, known = self._codes(ids)
        births, deaths = self.births(), self.deaths()
        keys = (known << 32) + births + 1
        order = np.argsort(keys, kind="stable")
        at = np.searchsorted(keys[order], (codes << 32) + rows + 1, side="right") - 1
        lives = order[np.maximum(at, 0)] if len(order) else np.zeros(len(rows), np.int64)
        lost = (at < 0) if len(order) else np.ones(len(rows), np.bool_)
        if len(order):
            lost |= (known[lives] != codes) | (rows >= deaths[lives])
        if lost.any():
            id = Uuid(ids.value(int(np.flatnonzero(lost)[0])))
            raise InvalidMetadata(f"a record names topic id {uuid_to_text(id)}, which does not exist")
        return lives

    def births(self) -> Ints:
        return np.array([life.birth for life in self.lives], np.int64)

    def deaths(self) -> Ints:
        return np.array([life.death for life in self.lives], np.int64)

    def alive(self) -> Bools:
        """Which live at the end."""
        alive: Bools = self.deaths() == NEVER
        return alive

    def _codes(self, ids: Strings) -> tuple[Ints, Ints]:
        """A number for each id: those of rows, and those of lives."""
        lives = fixed_array(np.frombuffer(b"".join(life.id for life in self.lives), np.uint8), ID_SIZE)
        all_ids = pa.concat_arrays([lives, fixed_array(ids.joined(), ID_SIZE)]).dictionary_encode()
        codes = numbers(all_ids.indices)
        return codes[len(self.lives) :], codes[: len(self.lives)]
