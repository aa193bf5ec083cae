"""How long partitions took no records: gaps between acknowledgements, by what was done to the nodes; pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

GAP_MS = 500
# A gap that begins just before a fault is the fault's: the last acknowledgement before it was some moments old.
EARLY_MS = 500


class Fault(NamedTuple):
    """What was done to which node, from when until it was undone."""

    kind: str
    node: int
    begun_ms: int
    ended_ms: int


class Gap(NamedTuple):
    """A time in which no record of the partition was acknowledged though records were offered."""

    partition: int
    begun_ms: int
    ended_ms: int

    @property
    def duration_ms(self) -> int:
        return self.ended_ms - self.begun_ms


class Availability:
    """Feed it every acknowledgement from `begun_ms` on. Those that come after `end` say nothing: no records are offered
    then, and a client may be a long time about the last of its own."""

    def __init__(self, partitions: int, begun_ms: int) -> None:
        self.begun_ms = begun_ms
        self.gaps: list[Gap] = []
        self._last_ms = [begun_ms] * partitions
        self._is_over = False

    def acked(self, partition: int, time_ms: int) -> None:
        """Clients tell in turn, each a little late, so that times may step back a little."""
        if self._is_over:
            return
        last = self._last_ms[partition]
        if time_ms - last >= GAP_MS:
            self.gaps.append(Gap(partition, last, time_ms))
        self._last_ms[partition] = max(last, time_ms)

    def end(self, time_ms: int) -> None:
        """From now on nothing is offered; what is open is closed."""
        for partition in range(len(self._last_ms)):
            self.acked(partition, time_ms)
        self._is_over = True

    def share(self, time_ms: int) -> float:
        """Of the time of all partitions up to now, the part outside of gaps."""
        offered = (time_ms - self.begun_ms) * len(self._last_ms)
        return 1 - sum(gap.duration_ms for gap in self.gaps) / offered if offered > 0 else 1.0


def by_fault(gaps: Iterable[Gap], faults: Sequence[Fault]) -> dict[str, list[int]]:
    """Durations by the kind of the last fault that had begun when the gap did; "none" before all faults."""
    found: dict[str, list[int]] = defaultdict(list)
    for gap in gaps:
        begun = [fault for fault in faults if fault.begun_ms <= gap.begun_ms + EARLY_MS]
        kind = max(begun, key=lambda fault: fault.begun_ms).kind if begun else "none"
        found[kind].append(gap.duration_ms)
    return dict(found)


def told(gap: Gap, faults: Sequence[Fault]) -> str:
    """Which partition took nothing for how long, and from which fault on until after which, by their numbers."""
    first = max(1, sum(fault.begun_ms <= gap.begun_ms + EARLY_MS for fault in faults))
    last = sum(fault.begun_ms <= gap.ended_ms for fault in faults)
    where = (
        "before all faults" if last < 1 else f"in fault {first}" if first >= last else f"in faults {first} to {last}"
    )
    return f"partition {gap.partition}, {gap.duration_ms} ms from {gap.begun_ms} on, {where}"


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
