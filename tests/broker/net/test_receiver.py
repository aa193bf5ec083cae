"""Frames from bytes: every partition of the bytes gives the same frames, and a claimed length allocates nothing."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.net.receiver import (
    ARENA_BYTES,
    FIRST_BUFFER_BYTES,
    GROWTH,
    SMALL_FRAME_BYTES,
    FrameReceiver,
    ReceiveArena,
)

SIZE_MAX = 1_000_000


def receiver(arena: ReceiveArena | None = None, size_max: int = SIZE_MAX) -> FrameReceiver:
    return FrameReceiver(arena or ReceiveArena(), size_max, lambda: True)


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def feed(target: FrameReceiver, data: bytes) -> list[memoryview]:
    """Fill the receiver's buffers completely with `data`."""
    frames: list[memoryview] = []
    position = 0
    while position < len(data):
        room = target.buffer()
        part = data[position : position + len(room)]
        room[: len(part)] = part
        frames += target.received(len(part))
        position += len(part)
    return frames


def test_frames_of_one_read_come_out_in_order() -> None:
    assert feed(receiver(), framed(b"one", b"", b"three")) == [b"one", b"", b"three"]


@given(
    sizes=st.lists(
        st.sampled_from([0, 1, 3, 100, SMALL_FRAME_BYTES, SMALL_FRAME_BYTES + 1, ARENA_BYTES + 5]), max_size=6
    ),
    cuts=st.lists(st.integers(0, 300_000), max_size=8),
)
def test_frames_do_not_depend_on_how_bytes_arrive(sizes: list[int], cuts: list[int]) -> None:
    bodies = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    stream = framed(*bodies)
    target = receiver()
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    frames = [frame for start, end in pairwise(places) for frame in feed(target, stream[start:end])]
    assert frames == bodies


def test_connections_share_one_arena_without_mixing_their_bytes() -> None:
    arena = ReceiveArena()
    left, right = receiver(arena), receiver(arena)
    feed(left, framed(b"left")[:6])
    feed(right, framed(b"right")[:5])
    assert feed(left, framed(b"left")[6:]) == [b"left"]
    assert feed(right, framed(b"right")[5:]) == [b"right"]


def test_held_frame_never_changes_and_is_writable() -> None:
    arena = ReceiveArena()
    (kept,) = feed(receiver(arena), framed(b"kept"))
    feed(receiver(arena), framed(b"other bytes in the same arena"))
    assert bytes(kept) == b"kept"
    kept[0:1] = b"K"
    assert bytes(kept) == b"Kept"


def test_large_frame_is_received_into_its_own_buffer() -> None:
    target = receiver()
    body = bytes(range(256)) * 2000
    stream = framed(body)
    feed(target, stream[:ARENA_BYTES])
    assert feed(target, stream[ARENA_BYTES:]) == [body]


def test_second_large_frame_gets_a_buffer_of_the_right_size_at_once() -> None:
    target = receiver()
    feed(target, framed(bytes(400_000)))
    head = framed(bytes(500_000))[:40_000]
    feed(target, head)
    assert target.claimed_bytes == 500_000
    assert len(target.buffer()) == 500_000 - (40_000 - 4)


def test_claimed_size_costs_nothing_until_bytes_arrive() -> None:
    target = receiver()
    feed(target, framed(bytes(900_000))[:4])
    assert target.claimed_bytes == FIRST_BUFFER_BYTES
    feed(target, bytes(FIRST_BUFFER_BYTES))
    assert target.claimed_bytes == FIRST_BUFFER_BYTES
    feed(target, b"x")
    assert target.claimed_bytes == GROWTH * FIRST_BUFFER_BYTES


def test_small_incomplete_frame_keeps_only_arrived_bytes() -> None:
    target = receiver()
    feed(target, framed(bytes(SMALL_FRAME_BYTES))[:50])
    assert target.claimed_bytes == 0
    assert len(target.buffer()) == ARENA_BYTES - 50


@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        (b"\x16\x03\x01\x02", "looks like a TLS handshake on a PLAINTEXT listener"),
        (b"GET ", "looks like an HTTP request"),
        (b"POST", "looks like an HTTP request"),
        (b"PRI ", "looks like an HTTP request"),
        (b"\xff\xff\xff\xff", "a request of negative size -1"),
        (b"\x7f\xff\xff\xff", "a request of 2147483647 bytes, more than socket.request.max.bytes=1000000"),
        (struct.pack(">i", SIZE_MAX + 1), "a request of 1000001 bytes, more than socket.request.max.bytes=1000000"),
    ],
)
def test_invalid_size_ends_the_stream_after_earlier_frames(prefix: bytes, reason: str) -> None:
    target = receiver()
    assert feed(target, framed(b"good") + prefix + b"whatever") == [b"good"]
    assert str(target.failure) == reason
    assert target.claimed_bytes == 0


def test_frame_of_exactly_the_limit_is_accepted() -> None:
    assert len(feed(receiver(), framed(bytes(SIZE_MAX)))[0]) == SIZE_MAX


def test_large_frame_without_room_keeps_its_start() -> None:
    has_room = False
    target = FrameReceiver(ReceiveArena(), SIZE_MAX, lambda: has_room)
    body = bytes(range(256)) * 200
    stream = framed(b"before", body)
    assert feed(target, stream[:1000]) == [b"before"]
    assert target.starved
    assert target.claimed_bytes == 0
    assert target.retry() == []
    has_room = True
    assert target.retry() == []
    assert target.claimed_bytes > 0
    assert feed(target, stream[1000:]) == [body]


def test_small_frames_need_no_room() -> None:
    target = FrameReceiver(ReceiveArena(), SIZE_MAX, lambda: False)
    assert feed(target, framed(bytes(SMALL_FRAME_BYTES))) == [bytes(SMALL_FRAME_BYTES)]
