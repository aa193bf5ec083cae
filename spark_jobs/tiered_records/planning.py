"""The plan for one partition: its inventory in the bucket to the segment ranges that tasks read.

Every offset is read once, only committed ones under read_committed, and none outside the bounds. No IO.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spark_jobs.tiered_records.bounds import EVERYTHING, ReadBounds
from storage.index.transaction import AbortedTxn
from storage.tiered.bucket.inventory import OffsetRange, PartitionInventory
from storage.tiered.catalog.lineage import Lineage
from storage.tiered.catalog.segment_spans import SegmentSpan, spans_of
from storage.tiered.segment_metadata import RemoteSegment


class RecordsMissing(Exception):
    """Offsets of the log are missing in the store. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """A range of one segment: the records with offsets from `first` to `last`, both inclusive, except those of
    `aborted`.

    Can be pickled. Timestamps as in `ReadBounds`.
    """

    segment: RemoteSegment
    first: int
    last: int
    from_ms: int
    to_ms: int
    aborted: tuple[AbortedTxn, ...] = ()


class Transactions(NamedTuple):
    """The transactions of one partition: the aborted ones, and the first offset from which on some transactions are
    undecided in the store.
    """

    aborted: Sequence[AbortedTxn] = ()
    undecided_from: int = EVERYTHING


def chain_in(inventory: PartitionInventory) -> list[SegmentSpan]:
    """Return the segments of the log in the store, each offset once."""
    history = Lineage(inventory.history, inventory.next_offset)
    return spans_of(inventory.needed, history, inventory.log_start_offset)


def links_of(
    inventory: PartitionInventory, chain: Iterable[SegmentSpan], bounds: ReadBounds, *, may_miss: bool = False
) -> list[SegmentSpan]:
    """Return the segments to read with their offsets. Raises RecordsMissing for missing offsets within the bounds, and
    for unreadable objects.
    """
    first, end = bounds.offsets_of(inventory.partition.topic, inventory.partition.partition)
    if not may_miss:
        _check_whole(inventory, first, end)
    clipped = (link._replace(first=max(link.first, first), last=min(link.last, end - 1)) for link in chain)
    return [link for link in clipped if link.first <= link.last and link.segment.max_timestamp_ms >= bounds.from_ms]


def spans_with_markers(chain: Iterable[SegmentSpan], links: Sequence[SegmentSpan]) -> list[SegmentSpan]:
    """Return the segments that may contain markers of transactions in `links`: markers come after the records."""
    first = min((link.first for link in links), default=EVERYTHING)
    return [link for link in chain if link.last >= first and not link.segment.txn_index_empty]


def aborted_in_span(link: SegmentSpan, found: Iterable[AbortedTxn]) -> list[AbortedTxn]:
    """Return the transactions with markers in a segment that were aborted in this log: offsets outside the segment's
    span belong to another history or to another segment.
    """
    return [txn for txn in found if link.first <= txn.last_offset <= link.last]


def slices_of(
    links: Iterable[SegmentSpan], bounds: ReadBounds, transactions: Transactions, splits: Iterable[Sequence[int]] = ()
) -> Iterator[SegmentRange]:
    """Yield the segment ranges. `splits` has for each link the offsets at which it may be divided, ascending."""
    cuts = iter(splits)
    for link in links:
        last = min(link.last, transactions.undecided_from - 1)
        starts = [link.first, *(offset for offset in next(cuts, ()) if link.first < offset <= last)]
        for first, following in zip(starts, [*starts[1:], last + 1], strict=True):
            if first < following:
                aborted = tuple(_overlapping(transactions.aborted, first, following - 1))
                yield SegmentRange(link.segment, first, following - 1, bounds.from_ms, bounds.to_ms, aborted)


def _overlapping(aborted: Iterable[AbortedTxn], first: int, last: int) -> Iterator[AbortedTxn]:
    return (each for each in aborted if each.first_offset <= last and each.last_offset >= first)


def _check_whole(inventory: PartitionInventory, first: int, end: int) -> None:
    """Raise RecordsMissing for missing offsets; an unreadable object may hold any offsets."""
    for fault in inventory.faults:
        raise RecordsMissing(f"{fault}; failOnDataLoss=false reads the other records.")
    for hole in inventory.holes:
        missing = OffsetRange(max(hole.first, first), min(hole.last, end - 1))
        if missing.first <= missing.last:
            raise RecordsMissing(
                f"offsets {missing.first} to {missing.last} of {inventory.partition} are not in the store;"
                " failOnDataLoss=false reads the other records."
            )
