"""Which part of a topic is wanted: by partition, offset and time, from options and from filters of a query.

Bounds only ever leave out what cannot be wanted; a row that they let through may still fail the query's filter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

EVERYTHING: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """`partitions` is None for all. Offsets from `first` to before `end`, those by partition taking the place of the
    common one; records with `from_ms` <= timestamp < `to_ms`.
    """

    partitions: frozenset[int] | None = None
    first: int = 0
    end: int = EVERYTHING
    firsts: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    from_ms: int = -1
    to_ms: int = EVERYTHING

    def wants(self, partition: int) -> bool:
        return self.partitions is None or partition in self.partitions

    def offsets_of(self, partition: int) -> tuple[int, int]:
        """(first, end)."""
        return max(self.firsts.get(partition, 0), self.first), min(self.ends.get(partition, EVERYTHING), self.end)

    def among(self, partitions: Iterable[int]) -> "Bounds":
        wanted = frozenset(partitions)
        return replace(self, partitions=wanted if self.partitions is None else self.partitions & wanted)

    def between(self, first: int, end: int) -> "Bounds":
        """Also within these offsets."""
        return replace(self, first=max(self.first, first), end=min(self.end, end))

    def during(self, from_ms: int, to_ms: int) -> "Bounds":
        """Also within this time."""
        return replace(self, from_ms=max(self.from_ms, from_ms), to_ms=min(self.to_ms, to_ms))
