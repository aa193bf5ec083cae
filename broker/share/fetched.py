"""The batches in a piece of a log, as share partitions see them."""

from collections.abc import Sequence

from broker.share.records import FetchedBatches, OffsetSpan
from protocol.primitives import Buffer
from protocol.records.batch import iter_headers


def fetched_batches(
    fetch_offset: int, records: Buffer, aborted: Sequence[tuple[int, int]] | None = None
) -> FetchedBatches:
    """Return the whole batches in `records`, and which of them belong to aborted transactions.

    `aborted` are (producer id, first offset) of the aborted transactions in the range; None where they do not matter.
    Raises MalformedBatch.
    """
    batches: list[OffsetSpan] = []
    skipped: list[OffsetSpan] = []
    waiting = sorted(aborted or (), key=lambda transaction: transaction[1], reverse=True)
    open_ids: set[int] = set()
    for _, header in iter_headers(records):
        bounds = OffsetSpan(header.base_offset, header.last_offset)
        batches.append(bounds)
        while waiting and waiting[-1][1] <= header.last_offset:
            open_ids.add(waiting.pop()[0])
        if not header.is_transactional or header.producer_id not in open_ids:
            continue
        if header.is_control:
            open_ids.discard(header.producer_id)  # the marker that ends the aborted transaction
        else:
            skipped.append(bounds)
    return FetchedBatches(fetch_offset, tuple(batches), tuple(skipped))
