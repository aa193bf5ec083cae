import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import DecodeError
from protocol.framing import frame_size
from tests.protocol.profile import more_examples
from tests.support.fakes.frame_reader import FrameReader, cut_frames


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4) + body for body in bodies)


def test_invalid_size_is_refused_before_allocation() -> None:
    assert frame_size(b"..\x00\x00\x00\x07", 2) == 7
    assert frame_size(b"\x00\x00\x00\x07", limit=7) == 7
    for prefix in (b"\x00\x00\x00\x08", b"\x7f\xff\xff\xff", b"GET ", b"\x16\x03\x01\x02"):
        with pytest.raises(DecodeError, match="exceeds the limit of 7"):
            frame_size(prefix, limit=7)
    with pytest.raises(DecodeError, match="negative size of -1 bytes"):
        frame_size(b"\xff\xff\xff\xff")


def test_whole_frames_are_cut_and_the_rest_is_left() -> None:
    data = memoryview(b"__" + framed(b"one", b"", b"three") + b"\x00\x00\x00\x09par")
    frames, position = cut_frames(data, 2)
    assert [bytes(frame) for frame in frames] == [b"one", b"", b"three"]
    assert bytes(data[position:]) == b"\x00\x00\x00\x09par"


@more_examples
@given(st.lists(st.binary(max_size=20), max_size=5), st.lists(st.integers(1, 7), min_size=1, max_size=40))
def test_frames_are_independent_of_chunking(bodies: list[bytes], sizes: list[int]) -> None:
    stream, reader, received = framed(*bodies), FrameReader(), []
    for size in sizes:
        received += [bytes(frame) for frame in reader.feed(stream[:size])]
        stream = stream[size:]
    received += [bytes(frame) for frame in reader.feed(stream)]
    assert received == bodies


def test_returned_frames_do_not_change() -> None:
    reader = FrameReader()
    source = bytearray(framed(b"first"))
    (frame,) = reader.feed(source)
    source[:] = bytes(len(source))
    reader.feed(framed(b"other"))
    assert bytes(frame) == b"first"
