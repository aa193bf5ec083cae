"""CPU per small request and per megabyte of the network layer alone, with clients in a child process and an echo
server.

Run it directly: `python tests/benchmarks/bench_net.py [--asyncio]`. No assertion depends on a time.
"""

import asyncio
import multiprocessing
import socket
import struct
import sys
import time
from typing import cast

from broker.clock import SystemClock
from broker.net.limits import NetLimits
from broker.net.listening import ListenAddress
from broker.net.request import Dispatch, EncodedResponse, Request
from broker.net.server import Server

ROUNDS = 5
MEGABYTE = memoryview(bytes(1_000_000))


def frame(body: bytes) -> bytes:
    """Return an ApiVersions 0 request with a body that is not decoded."""
    header = struct.pack(">hhih", 18, 0, 7, 4) + b"test"
    return struct.pack(">i", len(header) + len(body)) + header + body


def answer(request: Request) -> EncodedResponse:
    """Return four bytes of size and four of correlation id."""
    return [struct.pack(">ii", 4, request.header.correlation_id)]


def answer_large(request: Request) -> EncodedResponse:
    """Return a response like a fetch of a megabyte: a small head and a view of memory."""
    return [struct.pack(">ii", 4 + len(MEGABYTE), request.header.correlation_id), MEGABYTE]


async def answer_later(request: Request) -> EncodedResponse:
    """Respond from a task, the minimum cost of a handler that waits."""
    return answer(request)


def exchange(port: int, body_bytes: int, answer_bytes: int, depth: int, count: int) -> None:
    """Send `count` requests, `depth` at a time, each group after the responses to the last."""
    room = bytearray(1 << 20)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # like Kafka's clients
        batch = frame(bytes(body_bytes)) * depth
        for _ in range(count // depth):
            client.sendall(batch)
            left = answer_bytes * depth
            while left:
                left -= client.recv_into(room, min(left, len(room)))


async def run_client(name: str, port: int, body_bytes: int, depth: int, count: int, answer_bytes: int = 8) -> None:
    """Print the best of several rounds, in CPU and elapsed microseconds per request."""
    best_cpu, best_wall = 1e9, 1e9
    for _ in range(ROUNDS):
        client = multiprocessing.get_context("fork").Process(
            target=exchange, args=(port, body_bytes, answer_bytes, depth, count)
        )
        cpu, wall = time.process_time(), time.perf_counter()
        client.start()
        await asyncio.to_thread(client.join)
        best_cpu = min(best_cpu, (time.process_time() - cpu) / count)
        best_wall = min(best_wall, (time.perf_counter() - wall) / count)
    volume = max(body_bytes, answer_bytes)
    rate = f"{volume / best_wall / 1e6:8.0f} MB/s" if volume > 1000 else ""
    print(f"{name:34} {best_cpu * 1e6:8.2f} µs CPU {best_wall * 1e6:8.2f} µs wall {rate}")


async def measure(
    name: str, dispatch: Dispatch, body_bytes: int, depth: int, count: int, answer_bytes: int = 8
) -> None:
    """Measure one case with a server of the product."""
    server = Server(
        lambda _connection: dispatch, NetLimits(), [ListenAddress("PLAINTEXT", "127.0.0.1", 0)], clock=SystemClock()
    )
    server.open()
    server.start()
    await run_client(name, server.addresses["PLAINTEXT"][1], body_bytes, depth, count, answer_bytes)
    await server.drain(1.0)


class Floor(asyncio.BufferedProtocol):
    """The cost of the loop and the kernel alone: eight bytes in response to any data."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(65536))
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert self._transport is not None
        self._transport.write(b"12345678")


async def measure_floor(count: int) -> None:
    """Measure the best possible result, for comparison."""
    server = await asyncio.get_running_loop().create_server(Floor, "127.0.0.1", 0)
    await run_client("floor: no parsing, 50 B", server.sockets[0].getsockname()[1], 50, 1, count)
    server.close()


async def main() -> None:
    """Measure all cases."""
    await measure_floor(30_000)
    await measure("one at a time, 50 B", answer, 50, 1, 30_000)
    await measure("one at a time, 50 B, coroutine", answer_later, 50, 1, 30_000)
    await measure("16 pipelined, 50 B", answer, 50, 16, 160_000)
    await measure("one at a time, 1 KB", answer, 1_000, 1, 30_000)
    await measure("one at a time, 30 KB", answer, 30_000, 1, 20_000)
    await measure("one at a time, 1 MB", answer, 1_000_000, 1, 1_000)
    await measure("4 pipelined, 1 MB", answer, 1_000_000, 4, 1_000)
    await measure("one at a time, answers of 1 MB", answer_large, 50, 1, 1_000, 8 + len(MEGABYTE))
    await measure("4 pipelined, answers of 1 MB", answer_large, 50, 4, 1_000, 8 + len(MEGABYTE))


if __name__ == "__main__":
    if "--asyncio" in sys.argv:
        asyncio.run(main())
    else:
        import uvloop

        uvloop.run(main())
