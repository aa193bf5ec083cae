"""Availability of partitions: gaps between acknowledgements, assigned to faults. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

GAP_MS = 500
# A gap that begins just before a fault belongs to the fault: the last acknowledgement precedes it by some moments.
EARLY_MS = 500


class Fault(NamedTuple):
    """A kind of fault on a node, with its begin and end."""

    kind: str
    node: int
    begun_ms: int
    ended_ms: int


class Gap(NamedTuple):
    """A period in which the partition acknowledged no record although records were sent."""

    partition: int
    begun_ms: int
    ended_ms: int

    @property
    def duration_ms(self) -> int:
        return self.ended_ms - self.begun_ms


class Availability:
    """Gaps per partition, computed from acknowledgements since `begun_ms`. Acknowledgements after `end` are ignored,
    since no records are sent any more and the last ones may be acknowledged late."""

    def __init__(self, partitions: int, begun_ms: int) -> None:
        self.begun_ms = begun_ms
        self.gaps: list[Gap] = []
        self._last_ms = [begun_ms] * partitions
        self._is_over = False

    def acked(self, partition: int, time_ms: int) -> None:
        """Record an acknowledgement. Times may step back a little, since clients report with a delay."""
        if self._is_over:
            return
        last = self._last_ms[partition]
        if time_ms - last >= GAP_MS:
            self.gaps.append(Gap(partition, last, time_ms))
        self._last_ms[partition] = max(last, time_ms)

    def end(self, time_ms: int) -> None:
        """End the measurement, which closes open gaps."""
        for partition in range(len(self._last_ms)):
            self.acked(partition, time_ms)
        self._is_over = True

    def share(self, time_ms: int) -> float:
        """Return the share of all partitions' time until `time_ms` that lies outside of gaps."""
        offered = (time_ms - self.begun_ms) * len(self._last_ms)
        return 1 - sum(gap.duration_ms for gap in self.gaps) / offered if offered > 0 else 1.0


def by_fault(gaps: Iterable[Gap], faults: Sequence[Fault]) -> dict[str, list[int]]:
    """Return gap durations by the kind of the last fault that began before the gap, "none" before all faults."""
    found: dict[str, list[int]] = defaultdict(list)
    for gap in gaps:
        begun = [fault for fault in faults if fault.begun_ms <= gap.begun_ms + EARLY_MS]
        kind = max(begun, key=lambda fault: fault.begun_ms).kind if begun else "none"
        found[kind].append(gap.duration_ms)
    return dict(found)


def describe(gap: Gap, faults: Sequence[Fault]) -> str:
    """Describe a gap: partition, duration, begin, and the numbers of the faults during it."""
    first = max(1, sum(fault.begun_ms <= gap.begun_ms + EARLY_MS for fault in faults))
    last = sum(fault.begun_ms <= gap.ended_ms for fault in faults)
    where = (
        "before all faults" if last < 1 else f"in fault {first}" if first >= last else f"in faults {first} to {last}"
    )
    return f"partition {gap.partition}, {gap.duration_ms} ms from {gap.begun_ms} on, {where}"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile, 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
