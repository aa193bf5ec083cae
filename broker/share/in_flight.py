"""Records in flight of a share partition: runs of neighbouring offsets with the same state, in order.

A run is split where the state of a part changes, so the number of runs grows with the number of different states and
not with the number of records. Offsets that belong to no run are holes of a compacted log.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace

from broker.share.records import RecordState
from protocol.lazy_dataclass import lazy_dataclass


class ShareTransition:
    """One request for a change of states that must be persisted before it counts. Compared by identity."""

    __slots__ = ()


@lazy_dataclass(slots=True, eq=False)
class Run:
    """Records from `first` to `last` in one state.

    `origin` and `origin_last` are the bounds of the batch in which the records were first acquired. `member_id` and
    `deadline_ms` belong to an acquisition. While `transition` is being persisted, `state` is the one to come and
    `prior_state` the one to return to.
    """

    first: int
    last: int
    origin: int
    origin_last: int
    state: RecordState
    delivery_count: int
    member_id: str = ""
    deadline_ms: float = 0
    transition: ShareTransition | None = None
    prior_state: RecordState = RecordState.ACQUIRED

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1

    @property
    def is_available(self) -> bool:
        """Whether a member may acquire the records."""
        return self.state is RecordState.AVAILABLE and self.transition is None

    @property
    def is_done(self) -> bool:
        """Whether the records are in a final state that counts."""
        return self.transition is None and self.state.is_final

    def acquire(self, member_id: str, deadline_ms: float) -> None:
        """Deliver the records to a member once more."""
        self.state = RecordState.ACQUIRED
        self.delivery_count += 1
        self.member_id = member_id
        self.deadline_ms = deadline_ms

    def settle(self, state: RecordState) -> None:
        """End the acquisition."""
        self.state = state
        self.member_id = ""
        self.transition = None

    def continues(self, former: "Run") -> bool:
        """Whether the records follow those of `former` directly and differ from them in nothing."""
        return (
            former.last + 1 == self.first
            and former.state is self.state
            and former.transition is None
            and self.transition is None
            and self.state is not RecordState.ACQUIRED
            and former.delivery_count == self.delivery_count
            and former.origin == self.origin
        )


class InFlightRecords:
    """The runs of a share partition."""

    __slots__ = ("_firsts", "_runs")

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._firsts: list[int] = []

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @property
    def first(self) -> Run | None:
        """The run with the lowest offsets."""
        return self._runs[0] if self._runs else None

    @property
    def last(self) -> Run | None:
        """The run with the highest offsets."""
        return self._runs[-1] if self._runs else None

    def append(self, run: Run) -> None:
        """Add a run above all others."""
        assert not self._runs or self._runs[-1].last < run.first
        self._runs.append(run)
        self._firsts.append(run.first)

    def overlapping(self, first: int, last: int) -> list[Run]:
        """Return the runs with offsets from `first` to `last`, whole."""
        return self._runs[self._index(first) : bisect_right(self._firsts, last)]

    def cut_out(self, first: int, last: int) -> list[Run]:
        """Return runs that hold exactly the records from `first` to `last`; the runs around them are split."""
        self._split(first)
        self._split(last + 1)
        return self._runs[self._index(first) : bisect_right(self._firsts, last)]

    def part(self, run: Run, first: int, last: int) -> Run:
        """Return the part of `run` from `first` to `last` as a run of its own."""
        if first > run.first:
            self._split(first)
            run = self._runs[self._index(first)]
        if last < run.last:
            self._split(last + 1)
        return run

    def first_available(self, floor: int) -> Run | None:
        """Return the first run with offsets from `floor` on that a member may acquire."""
        for index in range(self._index(floor), len(self._runs)):
            if self._runs[index].is_available:
                return self._runs[index]
        return None

    def drop_below(self, offset: int) -> None:
        """Remove all records below an offset."""
        if self._runs and self._runs[0].first < offset:
            self._split(offset)
            count = bisect_left(self._firsts, offset)
            del self._runs[:count], self._firsts[:count]

    def drop_done(self) -> None:
        """Remove the leading runs in final states."""
        count = 0
        while count < len(self._runs) and self._runs[count].is_done:
            count += 1
        del self._runs[:count], self._firsts[:count]

    def join(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Join the runs from the offsets of each range on with equal neighbours."""
        for first, last in ranges:
            index = max(1, self._index(first))
            while index < len(self._runs) and self._runs[index].first <= last + 1:
                if self._runs[index].continues(self._runs[index - 1]):
                    self._runs[index - 1].last = self._runs[index].last
                    del self._runs[index], self._firsts[index]
                else:
                    index += 1

    def _index(self, offset: int) -> int:
        """Return the index of the first run that ends at or after an offset."""
        index = bisect_right(self._firsts, offset) - 1
        if index < 0:
            return 0
        return index if self._runs[index].last >= offset else index + 1

    def _split(self, offset: int) -> None:
        """Let a run begin at an offset, if records on both sides of it belong to one run."""
        index = bisect_right(self._firsts, offset) - 1
        if index < 0:
            return
        run = self._runs[index]
        if run.first < offset <= run.last:
            upper = replace(run, first=offset)
            run.last = offset - 1
            self._runs.insert(index + 1, upper)
            self._firsts.insert(index + 1, offset)
