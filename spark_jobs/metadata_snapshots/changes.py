"""The seam to the tables: what changed in each step of the fold, for whoever keeps it.

A sink is given to `Job`, and pickled to the executors. Nothing here writes anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from spark_jobs.metadata.registry import RegistryChange


@dataclass(frozen=True, slots=True)
class FoldedRange:
    """The offsets that a step folded: from `start` to before `end`, the last of them in `epoch`."""

    start: int
    end: int
    epoch: int


class ChangeSink(Protocol):
    """May be pickled. Every call may come again with the same span, also after a crash, and must then leave the same
    behind as one: what it writes goes by the span's offsets and replaces what is there.
    """

    def begin(self, end: int, cluster_id: str) -> None:
        """In the driver, before the first step: the state of this cluster ends at `end`. What a step wrote that did not
        come to its end is void.
        """
        ...

    def section(self, span: FoldedRange, section: int, changes: pa.Table) -> None:
        """In an executor: the changes of topics and partitions in a section, as SECTION_CHANGES; perhaps none."""
        ...

    def registry(self, span: FoldedRange, changes: Sequence[RegistryChange]) -> None:
        """In an executor: the changes of everything else."""
        ...

    def finish(self, span: FoldedRange) -> None:
        """In the driver: all executors have given theirs; the commit of the step follows, and may fail."""
        ...
