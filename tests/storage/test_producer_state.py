"""Idempotence and transactions on one log (KIP-98), and producer snapshots."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records.batch import MAX_SEQUENCE, BatchHeader, parse_header
from protocol.records.builder import Record, build_batch
from protocol.records.compiled import crc32c
from protocol.records.control import ControlType, end_transaction_marker
from storage.errors import CorruptCheckpoint, InvalidRecords, Rejection
from storage.producer_state import (
    CachedBatch,
    CompletedTxn,
    EndTransactionMarker,
    Origin,
    ProducerEntry,
    ProducerState,
)
from tests.storage.producer_entries import attributes_of


def data(
    sequence: int = 0,
    records: int = 1,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    at: int = 0,
    transactional: bool = False,
    timestamp: int = 1000,
) -> BatchHeader:
    return parse_header(
        build_batch(
            [Record(timestamp, None, b"v")] * records,
            base_offset=at,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def marker(
    type: ControlType, *, at: int, producer_id: int = 7, epoch: int = 0, coordinator: int = 0
) -> tuple[BatchHeader, EndTransactionMarker]:
    header = parse_header(end_transaction_marker(type, producer_id, epoch, coordinator, 1000))
    return header._replace(base_offset=at), EndTransactionMarker(type, coordinator)


def state_after(*headers: BatchHeader) -> ProducerState:
    state = ProducerState()
    for header in headers:
        state.apply(header)
    return state


def refusal(
    state: ProducerState, header: BatchHeader, origin: Origin = Origin.CLIENT, *, high_watermark: int = 0
) -> Rejection:
    with pytest.raises(InvalidRecords) as caught:
        state.check(header, origin, high_watermark)
    return caught.value.kind


def test_unknown_producer_may_start_with_any_sequence() -> None:
    assert ProducerState().check(data(sequence=500), Origin.CLIENT) is None


def test_sequences_must_be_consecutive() -> None:
    state = state_after(data(0, 3))
    assert state.check(data(3), Origin.CLIENT) is None
    assert refusal(state, data(4)) is Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(state, data(1)) is Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap() -> None:
    state = state_after(data(MAX_SEQUENCE - 1, 2))
    assert state.check(data(0), Origin.CLIENT) is None
    assert refusal(state, data(1)) is Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER
    over = state_after(data(MAX_SEQUENCE, 3, at=10))
    duplicate = over.check(data(MAX_SEQUENCE, 3), Origin.CLIENT)
    assert duplicate is not None
    assert (duplicate.first_offset, duplicate.last_offset) == (10, 12)
    assert over.check(data(2), Origin.CLIENT) is None


def test_duplicates_of_the_last_ten_batches_are_recognized() -> None:
    batches = [data(n * 2, 2, at=100 + n * 2) for n in range(11)]
    state = state_after(*batches)
    for batch in batches[1:]:
        duplicate = state.check(batch, Origin.CLIENT)
        assert duplicate is not None
        assert duplicate.first_offset == batch.base_offset
    assert refusal(state, batches[0]) is Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(state, data(20, 1)) is Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_repetition_of_a_forgotten_batch_is_a_duplicate_once_it_is_replicated() -> None:
    batches = [data(n * 2, 2, at=100 + n * 2) for n in range(5, 40)]
    state = state_after(*batches)
    replicated = state.entries[7].batches[0].first_offset
    assert refusal(state, batches[0], high_watermark=replicated) is Rejection.DUPLICATE_SEQUENCE_NUMBER
    assert refusal(state, batches[0], high_watermark=replicated - 1) is Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER
    before_the_first = data(8, 2)
    assert refusal(state, before_the_first, high_watermark=replicated) is Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER
    former_epoch = data(10, 2, epoch=-1)
    assert refusal(state, former_epoch, high_watermark=replicated) is Rejection.INVALID_PRODUCER_EPOCH


def test_loaded_state_proves_no_batch_before_the_last_one() -> None:
    state = state_after(*(data(n, at=n) for n in range(5)))
    loaded = ProducerState.decode("5.snapshot", state.encode(), 5)
    for n in range(5, 30):
        loaded.apply(data(n, at=n))
    assert refusal(loaded, data(4), high_watermark=100) is Rejection.DUPLICATE_SEQUENCE_NUMBER
    assert refusal(loaded, data(3), high_watermark=100) is Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_after_a_wrap_are_no_duplicates_of_those_before() -> None:
    state = state_after(*(data(n % (MAX_SEQUENCE + 1), at=n) for n in range(MAX_SEQUENCE - 20, MAX_SEQUENCE + 5)))
    assert refusal(state, data(6), high_watermark=2**62) is Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER
    for n in range(4, 30):
        state.apply(data(n, at=MAX_SEQUENCE + 1 + n))
    assert refusal(state, data(6), high_watermark=2**62) is Rejection.DUPLICATE_SEQUENCE_NUMBER
    assert refusal(state, data(MAX_SEQUENCE - 3), high_watermark=2**62) is Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_lower_epoch_is_fenced_and_higher_epoch_starts_at_sequence_0() -> None:
    state = state_after(data(0, epoch=3))
    assert refusal(state, data(1, epoch=2)) is Rejection.INVALID_PRODUCER_EPOCH
    assert refusal(state, data(1, epoch=2), Origin.COORDINATOR) is Rejection.INVALID_PRODUCER_EPOCH
    assert refusal(state, data(1, epoch=4)) is Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(data(0, epoch=4), Origin.CLIENT) is None
    state.apply(data(0, epoch=4))
    assert len(state.entries[7].batches) == 1


def test_coordinator_appends_skip_sequence_checks() -> None:
    state = state_after(data(0))
    assert state.check(data(9), Origin.COORDINATOR) is None
    assert state.check(data(0), Origin.COORDINATOR) is None


def test_transaction_ends_with_its_marker() -> None:
    state = state_after(data(0, at=10, transactional=True), data(1, at=11, transactional=True))
    assert state.first_unstable_offset == 10
    header, abort = marker(ControlType.ABORT, at=12)
    state.check_marker(header, abort)
    assert state.apply_marker(header, abort) == CompletedTxn(7, 10, 12, True)
    assert state.first_unstable_offset == 10
    state.on_high_watermark(12)
    assert state.first_unstable_offset == 10
    state.on_high_watermark(13)
    assert state.first_unstable_offset is None


def test_marker_without_transaction_changes_the_producer_only() -> None:
    state = ProducerState()
    header, commit = marker(ControlType.COMMIT, at=5, epoch=2, coordinator=4)
    assert state.apply_marker(header, commit) is None
    assert state.first_unstable_offset is None
    assert (state.entries[7].epoch, state.entries[7].coordinator_epoch) == (2, 4)


def test_marker_of_a_new_epoch_resets_the_sequence() -> None:
    state = state_after(data(0, 5, transactional=True))
    state.apply_marker(*marker(ControlType.ABORT, at=5, epoch=1))
    assert refusal(state, data(5, epoch=1)) is Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(data(0, epoch=1), Origin.CLIENT) is None


def test_marker_of_the_same_epoch_keeps_the_sequence() -> None:
    state = state_after(data(0, 5, transactional=True))
    state.apply_marker(*marker(ControlType.COMMIT, at=5))
    assert state.check(data(5, transactional=True), Origin.CLIENT) is None


def test_non_transactional_batches_are_refused_within_a_transaction() -> None:
    state = state_after(data(0, transactional=True))
    assert refusal(state, data(1)) is Rejection.INVALID_TXN_STATE
    assert refusal(state, data(1), Origin.COORDINATOR) is Rejection.INVALID_TXN_STATE


def test_markers_of_old_coordinators_and_epochs_are_refused() -> None:
    state = state_after(data(0, epoch=3, transactional=True))
    state.apply_marker(*marker(ControlType.COMMIT, at=1, epoch=3, coordinator=6))
    with pytest.raises(InvalidRecords) as fenced:
        state.check_marker(*marker(ControlType.COMMIT, at=2, epoch=3, coordinator=5))
    assert fenced.value.kind is Rejection.TRANSACTION_COORDINATOR_FENCED
    with pytest.raises(InvalidRecords) as old:
        state.check_marker(*marker(ControlType.COMMIT, at=2, epoch=2, coordinator=6))
    assert old.value.kind is Rejection.INVALID_PRODUCER_EPOCH
    state.check_marker(*marker(ControlType.COMMIT, at=2, epoch=3, coordinator=6))


def test_last_stable_offset_is_the_start_of_the_oldest_transaction() -> None:
    state = state_after(
        data(at=10, transactional=True), data(at=11, transactional=True, producer_id=8), data(at=12, producer_id=9)
    )
    completed = state.apply_marker(*marker(ControlType.COMMIT, at=13))
    assert completed is not None
    assert state.stable_offset_after(completed) == 11
    state.on_high_watermark(20)
    assert state.first_unstable_offset == 11
    last = state.apply_marker(*marker(ControlType.ABORT, at=20, producer_id=8))
    assert last is not None
    assert state.stable_offset_after(last) == 21
    assert state.first_unstable_offset == 11


def test_idle_producers_expire_unless_a_transaction_is_open() -> None:
    state = state_after(
        data(timestamp=1000), data(producer_id=8, timestamp=1500), data(producer_id=9, timestamp=0, transactional=True)
    )
    assert state.expire(now_ms=2000, expiration_ms=1000) == [7]
    assert sorted(state.entries) == [8, 9]


# -- snapshots -----------------------------------------------------------------------------------------------------


def test_snapshot_keeps_the_last_batch_of_each_producer_and_open_transactions() -> None:
    state = state_after(data(0, 2, at=5), data(2, 3, at=7), data(4, producer_id=8, epoch=2, at=10, transactional=True))
    state.apply_marker(*marker(ControlType.COMMIT, at=11, producer_id=9, coordinator=3))
    state.end_offset = 12
    loaded = ProducerState.decode("x", state.encode(), 12)
    assert loaded.end_offset == loaded.snapshot_offset == 12
    assert loaded.open_transactions == {10: 8}
    assert [batch.last_offset for batch in loaded.entries[7].batches] == [9]
    assert loaded.entries[7].last_sequence == 4
    assert (loaded.entries[8].epoch, loaded.entries[8].transaction_start) == (2, 10)
    assert (loaded.entries[9].coordinator_epoch, loaded.entries[9].last_sequence) == (3, -1)


def test_snapshot_has_kafkas_format() -> None:
    state = state_after(data(4, 3, at=100, producer_id=258, epoch=1, timestamp=99, transactional=True))
    body = struct.pack(">iqhiqiqiq", 1, 258, 1, 6, 102, 2, 99, -1, 100)
    assert state.encode() == struct.pack(">hI", 1, crc32c(body)) + body


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: b"",
        lambda content: content[:9],
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: content[:20] + b"\xff" + content[21:],
        lambda content: b"\0\2" + content[2:],
    ],
)
def test_corrupt_snapshots_are_refused(spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(CorruptCheckpoint):
        ProducerState.decode("x", spoil(state_after(data()).encode()), 1)


@given(
    st.lists(
        st.tuples(
            st.sampled_from((0, 0, 0, -2, 1, MAX_SEQUENCE - 2)), st.integers(1, 3), st.sampled_from((0, 0, 0, 1))
        ),
        max_size=25,
    )
)
def test_short_note_of_batches_in_order_agrees_with_the_general_one(batches: list[tuple[int, int, int]]) -> None:
    """Batches begin at a distance from the expected sequence, and some belong to another epoch."""
    state, expected = ProducerState(), ProducerEntry(7, 0)
    offset, following = 0, 0
    for distance, records, epoch in batches:
        header = data(following + distance & MAX_SEQUENCE, records, epoch=epoch, at=offset, timestamp=offset)
        state.apply(header)
        expected.adopt_epoch(epoch)
        expected.last_timestamp = header.max_timestamp
        expected.add(CachedBatch(header.last_sequence, header.last_offset, records - 1, header.max_timestamp))
        offset, following = header.next_offset, header.last_sequence + 1
        entry = state.entries[7]
        assert attributes_of(entry) == attributes_of(expected)
