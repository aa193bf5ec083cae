"""Log start objects: writes of leaders, precedence of epochs, and deposed leaders."""

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Buffer
from storage.checked_json import CHECKSUM
from storage.tiered.errors import StoreUnavailable
from storage.tiered.format.log_start_object import (
    LogStart,
    LogStartWriter,
    decode_log_start,
    encode_log_start,
    has_later_leader,
    log_start_object,
    read_log_start,
)
from storage.tiered.object_store import ObjectInfo
from tests.support.fakes.memory_object_store import MemoryObjectStore

DIRECTORY = "logs/foo-AAAAAAAAAAAAAAAAAAAAAg/3/"
START = LogStart(
    log_start_offset=17, leader_epoch=LeaderEpoch(4), cluster_id="c", broker_id=BrokerId(4), timestamp_ms=1_000
)


def writer(store: MemoryObjectStore, epoch: int, interval_ms: int = 30_000) -> LogStartWriter:
    return LogStartWriter(
        store,
        DIRECTORY,
        leader_epoch=LeaderEpoch(epoch),
        cluster_id="c",
        broker_id=BrokerId(epoch),
        interval_ms=interval_ms,
    )


def offset(store: MemoryObjectStore) -> int | None:
    found = read_log_start(store, DIRECTORY)
    return None if found is None else found.log_start_offset


def test_read_without_objects_returns_none() -> None:
    assert offset(MemoryObjectStore()) is None


def test_written_value_is_read_back() -> None:
    store = MemoryObjectStore()
    assert writer(store, 4).write(17, now_ms=1_000)
    assert store.keys() == [f"{DIRECTORY}log-start-0000000004"]
    assert read_log_start(store, DIRECTORY) == START


def test_log_starting_at_zero_needs_one_listing() -> None:
    store = MemoryObjectStore()
    leader = writer(store, 0)
    assert leader.write(0, now_ms=0)
    assert leader.write(0, now_ms=60_000)
    assert [call.operation for call in store.calls] == ["list"]


def test_unchanged_value_is_not_written_again() -> None:
    store = MemoryObjectStore()
    leader = writer(store, 0)
    assert leader.write(5, now_ms=0)
    assert leader.write(5, now_ms=60_000)
    assert [call.operation for call in store.calls] == ["list", "put"]


def test_changes_wait_for_the_interval() -> None:
    store = MemoryObjectStore()
    leader = writer(store, 0, interval_ms=100)
    assert leader.write(5, now_ms=0)
    assert not leader.write(6, now_ms=99)
    assert offset(store) == 5
    assert leader.write(6, now_ms=100)
    assert offset(store) == 6


def test_write_now_skips_the_interval() -> None:
    store = MemoryObjectStore()
    leader = writer(store, 0, interval_ms=100)
    leader.write(5, now_ms=0)
    assert leader.write_now(6, now_ms=1)
    assert offset(store) == 6


def test_new_leader_replaces_the_object_of_the_former_leader() -> None:
    store = MemoryObjectStore()
    writer(store, 3).write(50, now_ms=0)
    assert writer(store, 7).write(20, now_ms=1)
    assert store.keys() == [f"{DIRECTORY}log-start-0000000007"]
    assert offset(store) == 20


def test_new_leader_may_lower_the_log_start_to_zero() -> None:
    store = MemoryObjectStore()
    writer(store, 3).write(50, now_ms=0)
    assert writer(store, 7).write(0, now_ms=1)
    assert offset(store) == 0


def test_deposed_leader_changes_nothing() -> None:
    store = MemoryObjectStore()
    old = writer(store, 3, interval_ms=0)
    old.write(5, now_ms=0)
    writer(store, 4).write(6, now_ms=1)
    old.write(99, now_ms=2)
    assert offset(store) == 6
    late = writer(store, 3)
    assert not late.write(100, now_ms=3)
    assert not late.write_now(100, now_ms=4)
    assert offset(store) == 6


def test_failed_write_is_retried() -> None:
    class Down(MemoryObjectStore):
        is_down = True

        def put(self, key: str, parts: Iterable[Buffer]) -> int:
            if self.is_down:
                raise StoreUnavailable("down")
            return super().put(key, parts)

    store = Down()
    leader = writer(store, 0)
    with pytest.raises(StoreUnavailable):
        leader.write(5, now_ms=0)
    store.is_down = False
    assert leader.write(5, now_ms=0)
    assert offset(store) == 5


def test_object_removed_while_read_is_looked_up_again() -> None:
    store = MemoryObjectStore()
    writer(store, 1).write(5, now_ms=0)

    class Changing(MemoryObjectStore):
        def get(self, key: str, first: int = 0, last: int | None = None) -> Iterator[bytes]:
            if key.endswith("1"):
                writer(store, 2).write(9, now_ms=1)
            return store.get(key, first, last)

        def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
            return store.list(prefix, start_after)

    assert offset(Changing()) == 9


@example([(1, 0), (0, 1), (1, 0)])
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 100)),
        max_size=20,
    )
)
def test_newest_epoch_wins_in_any_write_order(writes: list[tuple[int, int]]) -> None:
    """Writes of leaders arrive in any order; readers get the last write of the highest epoch."""
    store = MemoryObjectStore()
    leaders = {epoch: writer(store, epoch, interval_ms=0) for epoch in range(4)}
    expected: tuple[int, int] | None = None
    for now_ms, (epoch, value) in enumerate(writes):
        leaders[epoch].write(value, now_ms)
        if (expected is None and (value or epoch)) or (expected is not None and epoch >= expected[0]):
            expected = (epoch, value)
    assert offset(store) == (None if expected is None else expected[1])


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"version":2}', b'{"version":1}', b"\xff"])
def test_invalid_content_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        decode_log_start(content)


def test_object_without_checksum_is_accepted() -> None:
    plain = (
        b'{"version":1,"clusterId":"c","brokerId":4,"leaderEpoch":4,"logStartOffset":17,"timestampMs":1000}'
    )  # fmt: skip
    assert decode_log_start(plain) == START


def test_any_flipped_bit_is_noticed_or_changes_nothing() -> None:
    content, accepted = encode_log_start(START), 0
    for position in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        try:
            assert decode_log_start(bytes(damaged)) == START
            accepted += 1
        except ValueError:
            pass
    assert accepted <= 8 * len(CHECKSUM)  # a damaged name of the checksum hides the checksum alone


def test_damaged_object_names_its_key_and_still_claims_its_term() -> None:
    store = MemoryObjectStore()
    writer(store, 4).write(17, now_ms=1_000)
    (key,) = store.keys()
    store.replace(key, store.content(key).replace(b":17,", b":16,"))
    with pytest.raises(ValueError, match=r"log-start-0000000004: .*checksum"):
        read_log_start(store, DIRECTORY)
    assert has_later_leader(log_start_object(store, DIRECTORY), LeaderEpoch(3))


def test_negative_offset_is_refused() -> None:
    negative = LogStart(
        log_start_offset=-1, leader_epoch=LeaderEpoch(0), cluster_id="c", broker_id=BrokerId(1), timestamp_ms=0
    )
    with pytest.raises(ValueError):
        decode_log_start(encode_log_start(negative))
