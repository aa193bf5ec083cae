"""The lag of groups over time, kept in memory for the groups that somebody looks at. No IO."""

from array import array
from collections import OrderedDict, deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Final

from broker.console.request import Json

GROUPS_MAX: Final = 50
PARTITIONS_MAX: Final = 200
"""Partitions of a group whose lag is kept; the total counts all."""
SAMPLES_MAX: Final = 150
SHOWN_MAX: Final = 60
"""Samples of a partition in one answer."""
STEP_MS: Final = 1_000
UNKNOWN: Final = -1

Partition = tuple[str, int]


class GroupLags:
    """Samples of one group: times, totals, and the lags of partitions; all are of the same length."""

    def __init__(self) -> None:
        self._times_ms: deque[int] = deque(maxlen=SAMPLES_MAX)
        self._totals: deque[int] = deque(maxlen=SAMPLES_MAX)
        self._partitions: dict[Partition, array[int]] = {}

    def add(self, now_ms: int, lags: Mapping[Partition, int | None], total: int) -> None:
        """Add a sample, unless the last one is less than `STEP_MS` old."""
        if self._times_ms and 0 <= now_ms - self._times_ms[-1] < STEP_MS:
            return
        before = len(self._times_ms)
        self._times_ms.append(now_ms)
        self._totals.append(total)
        for partition in [each for each in self._partitions if each not in lags]:
            del self._partitions[partition]
        for partition, lag in lags.items():
            values = self._partitions.get(partition)
            if values is None:
                if len(self._partitions) >= PARTITIONS_MAX:
                    continue
                values = self._partitions[partition] = array("q", [UNKNOWN]) * before
            values.append(UNKNOWN if lag is None else lag)
            del values[:-SAMPLES_MAX]

    def samples(self) -> list[Json]:
        """Return the totals with their times, oldest first."""
        return [{"time_ms": time_ms, "lag": lag} for time_ms, lag in zip(self._times_ms, self._totals, strict=True)]

    def of(self, partition: Partition) -> Sequence[int | None]:
        """Return the newest lags of a partition, oldest first, None where unknown; empty if they are not kept."""
        return [None if lag == UNKNOWN else lag for lag in self._partitions.get(partition, ())[-SHOWN_MAX:]]


class LagHistory:
    """The samples of the groups that were looked at last, by a key that separates viewers with different rights."""

    def __init__(self) -> None:
        self._groups: OrderedDict[Hashable, GroupLags] = OrderedDict()

    def group(self, key: Hashable) -> GroupLags:
        """Return the samples under `key`. The group that was not looked at for longest makes room."""
        lags = self._groups.setdefault(key, GroupLags())
        self._groups.move_to_end(key)
        while len(self._groups) > GROUPS_MAX:
            self._groups.popitem(last=False)
        return lags
