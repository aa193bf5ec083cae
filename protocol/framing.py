"""Frames: a signed 32-bit size, then so many bytes. Cuts them out of received bytes and refuses sizes beyond a limit.

Does no IO and keeps no socket. A server that reads into buffers of its own asks `frame_size`; whoever has bytes in
hand uses `cut_frames`, or `FrameReader`, which also keeps what is incomplete.
"""

from struct import Struct

from protocol.codec_errors import DecodeError
from protocol.primitives import Buffer

SIZE_BYTES = 4
DEFAULT_MAX_FRAME_BYTES = 100 * 1024 * 1024
"""Kafka's default of socket.request.max.bytes."""

_SIZE = Struct(">i")


def frame_size(buffer: Buffer, position: int = 0, limit: int = DEFAULT_MAX_FRAME_BYTES) -> int:
    """Bytes that follow the size prefix at `position`, where 4 bytes must be.

    Raises DecodeError when the size is negative or beyond `limit`. To be asked before anything is allocated for the
    frame: "GET " is a size of 1.2 GB.
    """
    (size,) = _SIZE.unpack_from(buffer, position)
    if size < 0:
        raise DecodeError(f"frame of {size} bytes")
    if size > limit:
        raise DecodeError(f"frame of {size} bytes exceeds the limit of {limit}")
    return int(size)


def cut_frames(
    view: memoryview, position: int = 0, limit: int = DEFAULT_MAX_FRAME_BYTES
) -> tuple[list[memoryview], int]:
    """(complete frames from `position` on, without their prefixes; position of the first incomplete one)."""
    frames: list[memoryview] = []
    end = len(view)
    while end - position >= SIZE_BYTES:
        start = position + SIZE_BYTES
        stop = start + frame_size(view, position, limit)
        if stop > end:
            break
        frames.append(view[start:stop])
        position = stop
    return frames, position


class FrameReader:
    """Bytes in, whole frames out. Holds at most one incomplete frame beyond what the last `feed` brought."""

    def __init__(self, limit: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._pending = b""

    def feed(self, data: Buffer) -> list[memoryview]:
        """Frames that `data` completes. Raises DecodeError, after which the stream is beyond repair."""
        held = self._pending + data if self._pending else bytes(data)
        frames, consumed = cut_frames(memoryview(held), 0, self._limit)
        self._pending = held[consumed:]
        return frames
