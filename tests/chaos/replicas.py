"""Comparison of the log files of a partition's replicas, once nothing is written any more."""

import time
from collections.abc import Sequence
from pathlib import Path

SETTLE_S = 40.0
CHUNK_BYTES = 1 << 20


def size(directory: Path) -> int:
    """Return the total size of a partition's segments."""
    return sum(segment.stat().st_size for segment in directory.glob("*.log"))


def wait_equal_sizes(partitions: Sequence[Sequence[Path]], timeout_s: float = SETTLE_S) -> bool:
    """Wait until the replicas of every partition have equal sizes. Return False on timeout."""
    deadline = time.monotonic() + timeout_s
    while any(len({size(each) for each in replicas}) != 1 for replicas in partitions):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def difference(replicas: Sequence[Path]) -> str | None:
    """Describe the first difference between replicas, None without one. Segment boundaries may differ."""
    first, *others = replicas
    for other in others:
        at = _first_difference(first, other)
        if at is not None:
            return f"{first} and {other} differ at byte {at} of {size(first)} and {size(other)}"
    return None


def _first_difference(one: Path, two: Path) -> int | None:
    at, left, right = 0, _Bytes(one), _Bytes(two)
    while True:
        a, b = left.read(), right.read()
        if a != b:
            shared = min(len(a), len(b))
            return at + next((index for index in range(shared) if a[index] != b[index]), shared)
        if not a:
            return None
        at += len(a)


class _Bytes:
    """The bytes of a partition's consecutive segments, in chunks of one size."""

    def __init__(self, directory: Path) -> None:
        self._segments = iter(sorted(directory.glob("*.log")))
        self._rest = b""

    def read(self) -> bytes:
        while len(self._rest) < CHUNK_BYTES and (segment := next(self._segments, None)) is not None:
            self._rest += segment.read_bytes()
        data, self._rest = self._rest[:CHUNK_BYTES], self._rest[CHUNK_BYTES:]
        return data
