"""Batches of a piece of a log, with those of aborted transactions."""

from broker.share.fetched import fetched_batches
from broker.share.records import FetchedBatches, OffsetSpan
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, control_batch

PRODUCER = 7


def data(base_offset: int, count: int, producer_id: int = PRODUCER) -> bytes:
    return build_batch(
        [Record(0, None, b"v")] * count,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def marker(base_offset: int, kind: ControlType) -> bytes:
    return control_batch([(kind, b"")], 0, base_offset=base_offset, producer_id=PRODUCER, transactional=True)


def test_aborted_batches_end_at_the_marker_of_their_transaction() -> None:
    records = data(0, 2) + data(2, 1, 8) + marker(3, ControlType.ABORT) + data(4, 2) + marker(6, ControlType.COMMIT)
    assert fetched_batches(1, records, [(PRODUCER, 0)]) == FetchedBatches(
        1,
        (OffsetSpan(0, 1), OffsetSpan(2, 2), OffsetSpan(3, 3), OffsetSpan(4, 5), OffsetSpan(6, 6)),
        (OffsetSpan(0, 1),),
    )


def test_incomplete_batch_at_the_end_does_not_count() -> None:
    records = data(0, 2) + data(2, 2)
    assert fetched_batches(0, records[:-1]).batches == (OffsetSpan(0, 1),)
