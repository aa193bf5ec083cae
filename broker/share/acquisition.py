"""Acquisition: which of the records that a read has found go to a member (KIP-932, KIP-1206).

Records that were delivered often are delivered in small numbers, and the last delivery of a record has the record
alone: a record that kills its consumers must not use up the deliveries of its neighbours.
"""

from broker.share.in_flight import InFlightRecords, Run
from broker.share.records import (
    AcquiredRecords,
    AcquireMode,
    AcquireRequest,
    FetchedBatches,
    OffsetSpan,
    RecordState,
    ShareLimits,
)


class Acquisition:
    """One acquisition by one member, until `deadline_ms`. The caller runs `take_known`, then maybe `take_new`.

    `room` is the number of records that may be acquired, before the end of a batch is reached.
    """

    def __init__(
        self, in_flight: InFlightRecords, limits: ShareLimits, request: AcquireRequest, room: int, deadline_ms: float
    ) -> None:
        self._in_flight = in_flight
        self._limits = limits
        self._request = request
        self._room = room
        self._deadline_ms = deadline_ms
        self._is_exact = request.mode is AcquireMode.RECORD_LIMIT
        self.is_throttled = False
        self.acquired: list[Run] = []

    @property
    def has_room(self) -> bool:
        """Whether more records may be acquired."""
        return self._room > 0 and not self.is_throttled

    def take_known(self, fetched: FetchedBatches, first: int, last: int) -> None:
        """Acquire records from `first` to `last` that are in flight already."""
        for run in self._in_flight.overlapping(first, last):
            if not self.has_room:
                return
            if not run.is_available:
                continue
            lower, upper = max(run.first, first), min(run.last, last)
            if run.delivery_count >= self._limits.throttled_from:
                if self.acquired:
                    return
                self._take_throttled(run, lower)
                continue
            if self._is_exact:
                upper = min(upper, lower + self._room - 1)
            elif run.delivery_count == 0:
                upper = min(upper, _end_of_batch(fetched.batches, lower + self._room - 1))
            self._take(self._in_flight.part(run, lower, upper))

    def take_new(self, fetched: FetchedBatches, first: int, last: int) -> None:
        """Acquire records from `first` to `last`, above all that are in flight."""
        wanted = first + self._room - 1
        last = min(last, wanted if self._is_exact else _end_of_batch(fetched.batches, wanted))
        for lower, upper in _cut_at_batches(fetched.batches, first, last, self._request.batch_size):
            run = Run(lower, upper, lower, upper, RecordState.AVAILABLE, 0)
            self._in_flight.append(run)
            self._take(run)

    def result(self) -> list[AcquiredRecords]:
        """Return the acquired records; neighbours of one batch with the same delivery count are one entry."""
        entries: list[AcquiredRecords] = []
        origin = -1
        for run in self.acquired:
            former = entries[-1] if entries else None
            if (
                former is not None
                and former.last + 1 == run.first
                and former.delivery_count == run.delivery_count
                and origin == run.origin
            ):
                entries[-1] = former._replace(last=run.last)
            else:
                entries.append(AcquiredRecords(run.first, run.last, run.delivery_count))
            origin = run.origin
        return entries

    def _take_throttled(self, run: Run, lower: int) -> None:
        """Acquire a few records of a batch that was delivered often, or one before its last delivery."""
        limits = self._limits
        self.is_throttled = True
        room = max(1, (run.origin_last - run.origin + 1) >> (run.delivery_count - limits.throttled_from + 1))
        if run.delivery_count >= limits.delivery_limit - 1 and limits.delivery_limit > 2:
            room = 1
        if self._is_exact:
            room = min(room, self._room)
        self._take(self._in_flight.part(run, lower, min(run.last, lower + room - 1)))

    def _take(self, run: Run) -> None:
        run.acquire(self._request.member_id, self._deadline_ms)
        self._room -= run.size
        self.acquired.append(run)


def _end_of_batch(batches: tuple[OffsetSpan, ...], offset: int) -> int:
    """Return the last offset of the batch that holds an offset; in a hole, of the next batch."""
    return next((batch.last for batch in batches if batch.last >= offset), batches[-1].last)


def _cut_at_batches(batches: tuple[OffsetSpan, ...], first: int, last: int, batch_size: int) -> list[OffsetSpan]:
    """Return the offsets from `first` to `last` in parts of about `batch_size` that begin where batches begin."""
    parts: list[OffsetSpan] = []
    for batch in batches:
        if batch.first > last:
            break
        if batch.first - first >= batch_size > 0:
            parts.append(OffsetSpan(first, batch.first - 1))
            first = batch.first
    parts.append(OffsetSpan(first, last))
    return parts
