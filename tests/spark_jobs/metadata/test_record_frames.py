"""The positions of records are equal in many batches together and in one alone."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from spark_jobs.metadata.byte_columns import Ints
from spark_jobs.metadata.record_frames import Frames, frames_of, varints


def zigzag(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def framed(sizes: Sequence[int]) -> bytes:
    return b"".join(zigzag(size) + bytes(size) for size in sizes)


def found(bodies: Sequence[bytes], counts: Sequence[int], least_together: int) -> Frames:
    ends = np.cumsum([len(body) for body in bodies])
    starts = ends - [len(body) for body in bodies]
    pool = np.frombuffer(b"".join(bodies), np.uint8)
    return frames_of(pool, starts, ends, np.array(counts), least_together=least_together, length_bytes=5)


def spans(frames: Frames) -> tuple[list[int], list[int]]:
    return frames.contents.tolist(), frames.stops.tolist()


def expected(batches: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    contents, stops, at = [], [], 0
    for size in (size for sizes in batches for size in sizes):
        contents.append(at + len(zigzag(size)))
        at = contents[-1] + size
        stops.append(at)
    return contents, stops


@pytest.mark.parametrize("least_together", [1, 3, 1000])
def test_frames_of_all_lengths_are_found(least_together: int) -> None:
    draw = random.Random(9)
    batches = [[draw.choice([6, 63, 64, 200, 8191, 8192, 20_000]) for _ in range(draw.randrange(9))] for _ in range(20)]
    batches.append([6, 2_000_000])
    frames = found([framed(sizes) for sizes in batches], [len(sizes) for sizes in batches], least_together)
    assert spans(frames) == expected(batches)
    assert frames.taken.tolist() == [len(sizes) > 0 for sizes in batches]


@pytest.mark.parametrize("least_together", [1, 1000])
@pytest.mark.parametrize(
    ("body", "count"),
    [
        (framed([7, 8]), 1),
        (framed([7, 8]), 3),
        (framed([7, 8]), 5),  # both records, a malformed one, and both again
        (framed([7, 5]), 2),
        (framed([7]) + zigzag(-8) + bytes(8), 2),
        (framed([7]) + b"\x80" * 9, 2),
        (framed([7]) + b"\xff\xff\xff\xff\x0f" + bytes(30), 2),
    ],
)
def test_malformed_batches_are_left_to_the_reader(body: bytes, count: int, least_together: int) -> None:
    good = framed([6, 100])
    frames = found([good, body, good], [2, count, 2], least_together)
    assert frames.taken.tolist() == [True, False, True]
    assert frames.stops[-1] == 2 * len(good) + len(body)


def test_varints_of_all_lengths_are_read() -> None:
    values = [0, -1, 1, 63, 64, -65, 2**20, -(2**31), 2**31 - 1, 2**62, -(2**63), 2**63 - 1]
    encoded = [zigzag(value) for value in values]
    pool = np.frombuffer(b"".join(encoded), np.uint8)
    at: Ints = np.cumsum([0, *map(len, encoded)])[:-1]
    read, sizes, is_whole = varints(pool, at, 10)
    assert read.tolist() == values
    assert sizes.tolist() == list(map(len, encoded))
    assert is_whole.all()
    assert varints(pool, at, 5)[2].tolist() == [len(each) <= 5 for each in encoded]
