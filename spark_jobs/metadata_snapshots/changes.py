"""The interface of the history tables: the changes of each step of the fold.

`Job` gets a sink and pickles it to the executors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from spark_jobs.metadata.registry import RegistryChange


@dataclass(frozen=True, slots=True)
class FoldedRange:
    """The offsets folded by a step: from `start` to before `end`; the last one has leader epoch `epoch`."""

    start: int
    end: int
    epoch: int


class ChangeSink(Protocol):
    """A receiver of changes, which can be pickled. Methods are idempotent: every call may be repeated with the same
    range, also after a crash, and replaces the earlier output for the range's offsets.
    """

    def begin(self, end: int, cluster_id: str) -> None:
        """Begin in the driver before the first step: the state of this cluster ends at `end`, and output of unfinished
        steps is void.
        """
        ...

    def section(self, span: FoldedRange, section: int, changes: pa.Table) -> None:
        """Receive in an executor the changes of topics and partitions in a section, as SECTION_CHANGES; perhaps
        none.
        """
        ...

    def registry(self, span: FoldedRange, changes: Sequence[RegistryChange]) -> None:
        """Receive in an executor the changes of the registry."""
        ...

    def finish(self, span: FoldedRange) -> None:
        """Finish a step in the driver after all executors; the commit of the step follows, and may fail."""
        ...
