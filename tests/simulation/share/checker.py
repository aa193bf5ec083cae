"""Invariants of share partitions, from the view of members and of the log."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from broker.share.partition import SharePartition
from broker.share.records import AcknowledgementBatch, AcknowledgeType, AcquiredRecords
from tests.simulation.simulator import Counts, EventLog


class ShareCounts(Counts):
    """Incidents of share histories."""

    NAMES = (
        "acquired records",
        "acknowledged records",
        "released records",
        "renewed locks",
        "elapsed locks",
        "dead members",
        "leader changes",
        "unaware leaders",
        "fenced writes",
        "lost writes",
        "repeated writes",
        "late writes",
        "failed acknowledgements",
        "deleted records",
        "records at their last delivery",
    )


class Held(NamedTuple):
    member: str
    until_ms: float


class ShareChecker(EventLog):
    """The records that members hold and have acknowledged. `missing` tells which offsets the log does not have."""

    def __init__(self, now_ms: Callable[[], float], limit: int) -> None:
        super().__init__(ShareCounts(), now_ms)
        self.missing: set[int] = set()
        self._limit = limit
        self._held: dict[int, dict[int, Held]] = {}
        self._durable: set[int] = set()
        self._finished: set[int] = set()
        self._starts: dict[int, int] = {}

    def on_acquired(
        self, epoch: int, member: str, acquired: Iterable[AcquiredRecords], until_ms: float, *, is_deposed: bool
    ) -> None:
        held = self._held.setdefault(epoch, {})
        for first, last, count in acquired:
            if count > self._limit:
                self.fail("DeliveriesAreLimited", f"{first} to {last} are delivered {count} times")
            if count == self._limit:
                self.counts.add("records at their last delivery")
                self._finished.update(range(first, last + 1))
            for offset in range(first, last + 1):
                other = held.get(offset)
                if other is not None and self._now_ms() < other.until_ms:
                    self.fail("RecordsHaveOneHolder", f"{offset} goes to {member} while {other.member} has it")
                if offset in self._durable and not is_deposed:
                    self.fail("AcknowledgedRecordsStaySo", f"{offset} is delivered again by leader {epoch}")
                held[offset] = Held(member, until_ms)
                self.counts.add("acquired records")

    def on_attempt(self, batches: Iterable[AcknowledgementBatch]) -> None:
        """Note acknowledgements that may be applied, whatever the member learns of it."""
        self._finished.update(offset for offset, kind in _by_offset(batches) if _is_final(kind))

    def on_renewed(self, epoch: int, offsets: Iterable[int], until_ms: float) -> None:
        held = self._held.setdefault(epoch, {})
        for offset in offsets:
            if offset in held:
                held[offset] = held[offset]._replace(until_ms=until_ms)
        self.counts.add("renewed locks")

    def on_taken(self, epoch: int, member: str, start: int, batches: Iterable[AcknowledgementBatch]) -> None:
        """Note that a leader takes acknowledgements of a member from `start` on."""
        held = self._held.get(epoch, {})
        for offset, _ in _by_offset(batches):
            holder = held.get(offset)
            if offset >= start and offset not in self.missing and (holder is None or holder.member != member):
                self.fail("OnlyHoldersAcknowledge", f"{member} acknowledges {offset}, which it does not hold")

    def on_durable(self, epoch: int, batches: Iterable[AcknowledgementBatch]) -> None:
        held = self._held.get(epoch, {})
        for offset, kind in _by_offset(batches):
            held.pop(offset, None)
            self.counts.add("acknowledged records" if _is_final(kind) else "released records")
            if _is_final(kind):
                self._durable.add(offset)

    def held_by(self, epoch: int, member: str) -> dict[int, Held]:
        """Return what a member holds, by offset."""
        return {offset: each for offset, each in self._held.get(epoch, {}).items() if each.member == member}

    def on_released(self, epoch: int, member: str, released: Mapping[int, Held] | None = None) -> None:
        """Note that a leader has released records of a member: those that it held when the release began, or all.

        Records that the member acquired since then stay with it.
        """
        held = self._held.get(epoch, {})
        for offset, each in (self.held_by(epoch, member) if released is None else released).items():
            if held.get(offset) is each:
                del held[offset]

    def observe(self, epoch: int, partition: SharePartition) -> None:
        """Check the start offset of the leader in an epoch."""
        start = partition.start_offset
        former = self._starts.get(epoch, start)
        if start < former:
            self.fail("StartNeverGoesBack", f"leader {epoch} goes from {former} to {start}")
        for offset in range(former if epoch in self._starts else 0, start):
            if offset not in self._finished and offset not in self.missing:
                self.fail("NothingIsSkipped", f"leader {epoch} starts at {start}, but {offset} was never finished")
        self._starts[epoch] = start


def _by_offset(batches: Iterable[AcknowledgementBatch]) -> Iterable[tuple[int, AcknowledgeType]]:
    for first, last, types in batches:
        for offset in range(first, last + 1):
            yield offset, types[0] if len(types) == 1 else types[offset - first]


def _is_final(kind: AcknowledgeType) -> bool:
    return kind in (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.GAP)
