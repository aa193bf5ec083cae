"""Fields of partitions in numpy columns: the input of a fold, and the source of its Arrow columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from spark_jobs.metadata.byte_columns import Bools, Bytes, Ints, Strings, int_array, numbers, strings_of
from spark_jobs.metadata.section_state import LISTS, NUMBERS, SECTION_STATE

FIELDS: Final = (*NUMBERS, *LISTS)


@dataclass(slots=True)
class StateColumns:
    """`numbers` and `lists` by the names of SECTION_STATE; all lists lie in one pool."""

    numbers: dict[str, Ints]
    starts: dict[str, Ints]
    lengths: dict[str, Ints]
    pool: Bytes

    @classmethod
    def of(cls, state: pa.Table) -> "StateColumns":
        """Convert a SECTION_STATE. The rows of topics have undefined numbers and empty lists."""
        lists = {name: strings_of(state.column(name)) for name in LISTS}
        return cls(
            {name: numbers(state.column(name)) for name in NUMBERS},
            {name: each.starts for name, each in lists.items()},
            {name: each.lengths for name, each in lists.items()},
            np.empty(0, np.uint8),
        )._in_one_pool([each.pool for each in lists.values()])

    def __len__(self) -> int:
        return len(self.numbers["leader"])

    def with_rows(self, other: "StateColumns") -> "StateColumns":
        """Append the rows of another and one row of absent values."""
        zero, shift = np.zeros(1, np.int64), len(self.pool)
        none = np.zeros(len(self) + len(other) + 1, np.int64)
        starts, lengths = dict.fromkeys(LISTS, none), dict.fromkeys(LISTS, none)
        for name in LISTS:
            if name == "directories" or self.lengths[name].any() or other.lengths[name].any():
                starts[name] = np.concatenate((self.starts[name], other.starts[name] + shift, zero))
                lengths[name] = np.concatenate((self.lengths[name], other.lengths[name], zero))
        return StateColumns(
            {name: np.concatenate((each, other.numbers[name], zero)) for name, each in self.numbers.items()},
            starts,
            lengths,
            np.concatenate((self.pool, other.pool)),
        )

    def is_blank(self, name: str) -> bool:
        """Whether a list is empty everywhere. Concatenated empty lists share their columns, except for directories,
        which a fold adds where there were none.
        """
        return not self.lengths[name].any()

    def number(self, name: str, sources: Ints, nulls: Bools | None = None) -> pa.Array:
        """Return a column of SECTION_STATE with the numbers of these rows."""
        return int_array(self.numbers[name][sources], SECTION_STATE.field(name).type, nulls)

    def list(self, name: str, sources: Ints) -> Strings:
        """Return the lists of these rows without copying."""
        if self.is_blank(name):
            none = np.zeros(len(sources), np.int64)
            return Strings(self.pool[:0], none, none)
        return Strings(self.pool, self.starts[name][sources], self.lengths[name][sources])

    def list_value(self, name: str, row: int) -> bytes:
        start = int(self.starts[name][row])
        return self.pool[start : start + int(self.lengths[name][row])].tobytes()

    def _in_one_pool(self, pools: Sequence[Bytes]) -> "StateColumns":
        shift = 0
        for name, pool in zip(LISTS, pools, strict=True):
            self.starts[name] = self.starts[name] + shift
            shift += len(pool)
        self.pool = np.concatenate(pools)
        return self


def state_columns(rows: StateColumns, sources: Mapping[str, Ints], nulls: Bools) -> list[pa.Array]:
    """Return the columns of SECTION_STATE after the name, each from its own source rows; `nulls` are the rows of
    topics.
    """
    some = nulls if nulls.any() else None
    arrays = [rows.number(name, sources[name], some) for name in NUMBERS]
    for name in LISTS:
        lists = rows.list(name, sources[name])
        if some is not None:
            lists = lists._replace(lengths=np.where(some, 0, lists.lengths))
        arrays.append(lists.array(nulls=some))
    return arrays
