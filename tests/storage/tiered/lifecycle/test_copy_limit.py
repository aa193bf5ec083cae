"""Limit of copies at once over a short bandwidth."""

import pytest

from storage.tiered.lifecycle.copy_limit import TARGET_MS, copies_at_once

GIB = 1 << 30
TARGET_S = TARGET_MS // 1000


@pytest.mark.parametrize(
    ("bytes_per_second", "limit"),
    [
        (None, 10),
        (0.0, 1),
        (GIB / TARGET_S / 4, 1),
        (2 * GIB / TARGET_S, 2),
        (2.9 * GIB / TARGET_S, 2),
        (GIB, 10),
    ],
)
def test_as_many_copies_run_at_once_as_finish_in_time(bytes_per_second: float | None, limit: int) -> None:
    assert copies_at_once(bytes_per_second, GIB, 10) == limit


def test_small_segments_use_all_threads() -> None:
    assert copies_at_once(100_000.0, 1_000_000, 10) == 10


def test_segment_without_bytes_does_not_limit() -> None:
    assert copies_at_once(1.0, 0, 10) == 10
