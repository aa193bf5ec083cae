"""The rules of compaction for single batches, in the order of the log.

Theory (Kafka's Cleaner, KIP-534). A record is outdated when a later one has its key. A tombstone is kept until every
consumer that reads steadily has had ``delete.retention.ms`` to see it: the first pass that meets it writes a time, the
delete horizon, into its batch, and a pass at or after that time drops it. Tombstones stay if older records may be in
remote storage alone: nothing else would show that an older value is deleted. Data of aborted transactions is dropped at
once. The marker of a transaction must outlive its data; once a pass meets the marker and no data, the marker gets a
horizon too. A batch may lose all records and still stay, as a bare header, where its offsets or its producer's sequence
are needed: the last data of a live producer, the end of the pass's range, and, unlike in Kafka, the beginning of a
leader epoch. Followers derive the start of the epoch from it, and replicas must agree on epochs to find the same
segments in remote storage.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader
from protocol.records.builder import empty_batch, rebuild_batch
from protocol.records.control import ControlType, read_marker
from protocol.records.reader import FullRecord, iter_records
from storage.compaction.offset_map import OffsetMap
from storage.index.transaction import AbortedTxn
from storage.producer_state import NO_OFFSET, ProducerEntry


class LastData(NamedTuple):
    """The last offset of a live producer's newest data batch (-1: the producer has only markers), and its epoch."""

    offset: int
    epoch: int


def last_data_of(producers: Iterable[ProducerEntry]) -> dict[int, LastData]:
    return {entry.producer_id: LastData(entry.last_data_offset, entry.epoch) for entry in producers}


class TransactionScan:
    """The state of transactions while batches are shown in the order of the log.

    ``aborted`` are the aborted transactions of the log that end at or after the first batch shown.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._ahead = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._aborting: dict[int, AbortedTxn] = {}
        self._met_data: set[int] = set()

    def copy(self) -> "TransactionScan":
        """Return a copy, for batches that may have to be shown again."""
        scan = TransactionScan(())
        scan._ahead, scan._aborting, scan._met_data = self._ahead.copy(), self._aborting.copy(), self._met_data.copy()
        return scan

    def is_aborted_data(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        self._met_data.add(header.producer_id)
        aborting = self._aborting.get(header.producer_id)
        return aborting is not None and header.base_offset < aborting.last_offset

    def on_marker(self, header: BatchHeader, batch: Buffer) -> tuple[bool, AbortedTxn | None]:
        """Return whether a control batch ends a transaction without remaining data, and else the transaction that it
        aborts.
        """
        self._advance(header.last_offset)
        if header.record_count == 0:
            return True, None
        marker = read_marker(batch)
        if marker is None:
            return False, None
        met_data = header.producer_id in self._met_data
        self._met_data.discard(header.producer_id)
        aborted = self._aborting.pop(header.producer_id, None) if marker[0] is ControlType.ABORT else None
        return not met_data, aborted if met_data else None

    def _advance(self, offset: int) -> None:
        """Start the transactions that begin at or before ``offset``."""
        while self._ahead and self._ahead[-1].first_offset <= offset:
            txn = self._ahead.pop()
            self._aborting[txn.producer_id] = txn


class Kept(NamedTuple):
    """The remaining part of a batch. ``aborted`` goes into the transaction index of the new segment."""

    batch: Buffer
    max_timestamp: int
    aborted: AbortedTxn | None


ALL = 2**63 - 1
"""Bound above all offsets."""


class _WhenEmpty(Enum):
    KEEP_HEADER = auto()
    DROP = auto()


class BatchRules:
    """The rules of one pass over one log. Batches must be shown in the order of the log, each once.

    Tombstones at or above `final_below` stay without a delete horizon: older records of their keys may be in remote
    storage.
    """

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: TransactionScan,
        live_producers: Mapping[int, LastData],
        *,
        upper_bound: int,
        now_ms: int,
        delete_retention_ms: int,
        final_below: int = ALL,
        epoch_starts: Collection[int] = (),
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._live_producers = live_producers
        self._upper_bound = upper_bound
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._final_below = final_below
        self._epoch_starts = epoch_starts

    def apply(self, header: BatchHeader, batch: Buffer) -> Kept | None:
        """Return the remaining part of ``batch``, whose checksum is valid: the same bytes if nothing changes, None if
        nothing remains. Raises MalformedRecords for a body that does not parse.
        """
        if header.is_control:
            return self._apply_to_marker(header, batch)
        if self._transactions.is_aborted_data(header):
            return self._emptied(header)
        if header.base_offset > self._offsets.latest_offset:
            return Kept(batch, header.max_timestamp, None)
        return self._apply_to_data(header, batch)

    def _apply_to_marker(self, header: BatchHeader, batch: Buffer) -> Kept | None:
        without_data, aborted = self._transactions.on_marker(header, batch)
        if header.record_count == 0:
            return self._emptied(header)
        if not without_data:
            return Kept(batch, header.max_timestamp, aborted)
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None:
            return self._rebuilt(header, list(iter_records(batch)), horizon_ms=self._new_horizon())
        return self._emptied(header) if horizon_ms <= self._now_ms else Kept(batch, header.max_timestamp, None)

    def _apply_to_data(self, header: BatchHeader, batch: Buffer) -> Kept | None:
        """Keep a record beyond the mapped offsets, or the newest of its key if it has a value or is a tombstone within
        its time. One expression: it runs for every record of the log.
        """
        newest, mapped_to = self._offsets.get, self._offsets.latest_offset
        horizon_ms = header.delete_horizon_ms
        is_final = header.last_offset < self._final_below
        keeps_tombstones = not is_final or horizon_ms is None or self._now_ms < horizon_ms
        kept = [
            record
            for record in (iter_records(batch) if header.record_count else ())
            if (offset := record.offset) > mapped_to
            or (
                (key := record.key) is not None
                and offset >= newest(key)
                and (keeps_tombstones or record.value is not None)
            )
        ]
        if not kept:
            return self._emptied(header)
        # A tombstone above the mapped offsets has outdated nothing yet and gets no delete horizon.
        is_final = is_final and header.last_offset <= mapped_to
        if is_final and horizon_ms is None and any(record.value is None for record in kept):
            return self._rebuilt(header, kept, horizon_ms=self._new_horizon())
        if len(kept) == header.record_count:
            return Kept(batch, header.max_timestamp, None)
        return self._rebuilt(header, kept, horizon_ms=None)

    def _new_horizon(self) -> int:
        return self._now_ms + self._delete_retention_ms

    def _rebuilt(self, header: BatchHeader, records: list[FullRecord], *, horizon_ms: int | None) -> Kept:
        batch = rebuild_batch(header, records, delete_horizon_ms=horizon_ms)
        return Kept(batch, max(record.timestamp for record in records), None)

    def _emptied(self, header: BatchHeader) -> Kept | None:
        if self._when_empty(header) is _WhenEmpty.DROP:
            return None
        return Kept(empty_batch(header), header.max_timestamp, None)

    def _when_empty(self, header: BatchHeader) -> _WhenEmpty:
        is_boundary = header.next_offset == self._upper_bound or header.base_offset in self._epoch_starts
        if is_boundary or self._is_last_of_live_producer(header):
            return _WhenEmpty.KEEP_HEADER
        return _WhenEmpty.DROP

    def _is_last_of_live_producer(self, header: BatchHeader) -> bool:
        last = self._live_producers.get(header.producer_id) if header.has_producer else None
        if last is None:
            return False
        if last.offset != NO_OFFSET:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch
