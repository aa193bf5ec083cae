"""Division of large appends (`broker.runtime.loop.append_slices`)."""

import pytest

from broker.quorum.ready import Append
from broker.runtime.loop.append_slices import SLICE_BATCHES, SLICE_BYTES, SMALL_BYTES, sliced
from protocol.ids import LeaderEpoch
from protocol.records.batch import iter_headers
from protocol.records.builder import Record, build_batch
from tests.support.quorum_values import make_append


def append_of(count: int, value_bytes: int) -> Append:
    batches = [
        build_batch([Record(7, None, bytes(value_bytes))], base_offset=offset, leader_epoch=LeaderEpoch(3))
        for offset in range(count)
    ]
    return make_append(b"".join(batches), count, 3)


@pytest.mark.parametrize(("count", "value_bytes"), [(1_000, 10), (30, 100_000), (257, 100), (3, 3 * SLICE_BYTES)])
def test_large_append_is_divided_between_batches(count: int, value_bytes: int) -> None:
    whole = append_of(count, value_bytes)
    slices = list(sliced(whole))
    assert b"".join(bytes(each.batches) for each in slices) == whole.batches
    assert slices[-1].end_offset == count
    for each in slices:
        headers = [header for _, header in iter_headers(each.batches)]
        assert each.end_offset == headers[-1].next_offset
        assert len(headers) <= SLICE_BATCHES
        assert sum(header.size for header in headers[:-1]) < SLICE_BYTES
        assert each.epoch == 3
    assert len(slices) > 1


def test_small_append_is_not_divided() -> None:
    whole = append_of(10, 10)
    assert len(whole.batches) < SMALL_BYTES
    assert list(sliced(whole)) == [whole]
