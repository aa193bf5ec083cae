"""Response chunks of one connection, gathered so that one wake-up costs one write. Knows no request."""

import asyncio

from broker.net.stats import ListenerStats
from protocol.primitives import Buffer

JOIN_MAX_BYTES = 32 * 1024  # in total: below, one joined string is faster than a list of buffers, in the kernel too
SMALL_CHUNK_BYTES = 4 * 1024  # smaller neighbours are joined, so that few buffers are left


class ResponseWriter:
    """Chunks in order; `flush` writes them. More than `JOIN_MAX_BYTES` are written at once.

    Large chunks (mostly views of log segments) reach the transport uncopied and must not change until they are sent.
    """

    __slots__ = ("_chunks", "_size", "_stats", "_transport")

    def __init__(self, transport: asyncio.Transport, stats: ListenerStats) -> None:
        self._transport = transport
        self._stats = stats
        self._chunks: list[Buffer] = []
        self._size = 0

    def add(self, chunks: list[Buffer]) -> None:
        """Append chunks. May write, and so make the transport call `pause_writing`."""
        self._chunks += chunks
        for chunk in chunks:
            self._size += len(chunk)
        if self._size > JOIN_MAX_BYTES:
            self.flush()

    @property
    def has_responses(self) -> bool:
        """Whether `flush` would write."""
        return bool(self._chunks)

    def flush(self) -> None:
        """Hand all chunks to the transport."""
        chunks, size = self._chunks, self._size
        if not chunks:
            return
        self._chunks, self._size = [], 0
        self._stats.bytes_out += size
        if len(chunks) == 1:
            self._transport.write(chunks[0])
        elif size <= JOIN_MAX_BYTES:
            self._transport.write(b"".join(chunks))
        else:
            self._transport.writelines(join_small(chunks))


def join_small(chunks: list[Buffer]) -> list[Buffer]:
    """Return the same bytes in fewer chunks: small neighbours are joined, large chunks stay the same objects."""
    joined: list[Buffer] = []
    run: list[Buffer] = []
    for chunk in chunks:
        if len(chunk) < SMALL_CHUNK_BYTES:
            run.append(chunk)
            continue
        if run:
            joined.append(b"".join(run))
            run = []
        joined.append(chunk)
    if run:
        joined.append(b"".join(run))
    return joined
