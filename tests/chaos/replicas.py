"""Whether the files of a partition's replicas hold the same bytes, once nothing is written any more."""

import time
from collections.abc import Sequence
from pathlib import Path

SETTLE_S = 40.0
CHUNK_BYTES = 1 << 20


def size(directory: Path) -> int:
    """Of all segments of a partition."""
    return sum(segment.stat().st_size for segment in directory.glob("*.log"))


def wait_equal_sizes(partitions: Sequence[Sequence[Path]], timeout_s: float = SETTLE_S) -> bool:
    """Until the replicas of every partition are as long as each other; False when they never are."""
    deadline = time.monotonic() + timeout_s
    while any(len({size(each) for each in replicas}) != 1 for replicas in partitions):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def difference(replicas: Sequence[Path]) -> str | None:
    """Where the first two replicas that differ do so, in words; segments may begin at different places."""
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
    """The segments of a partition, one after the other, in chunks of one size."""

    def __init__(self, directory: Path) -> None:
        self._segments = iter(sorted(directory.glob("*.log")))
        self._rest = b""

    def read(self) -> bytes:
        while len(self._rest) < CHUNK_BYTES and (segment := next(self._segments, None)) is not None:
            self._rest += segment.read_bytes()
        data, self._rest = self._rest[:CHUNK_BYTES], self._rest[CHUNK_BYTES:]
        return data
