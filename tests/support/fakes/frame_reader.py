"""Whole frames from received bytes."""

from protocol.framing import DEFAULT_MAX_FRAME_BYTES, SIZE_BYTES, frame_size
from protocol.primitives import Buffer


def cut_frames(
    view: memoryview, position: int = 0, limit: int = DEFAULT_MAX_FRAME_BYTES
) -> tuple[list[memoryview], int]:
    """Return (complete frames from `position` on, without their prefixes; position of the first incomplete one)."""
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
    """A buffer that turns received bytes into whole frames. Holds at most one incomplete frame besides the last
    `feed`.
    """

    def __init__(self, limit: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._pending = b""

    def feed(self, data: Buffer) -> list[memoryview]:
        """Return the frames that `data` completes. Raises DecodeError, after which the stream is unusable."""
        held = self._pending + data if self._pending else bytes(data)
        frames, consumed = cut_frames(memoryview(held), 0, self._limit)
        self._pending = held[consumed:]
        return frames
