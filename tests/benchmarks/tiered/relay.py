"""The least that a tiered read costs on a machine: bytes received from one process and sent to another.

A thread of the caller passes pieces to a connection of its own; another process, `python -m
tests.benchmarks.tiered.relay PORT CONNECTIONS`, receives and discards them.
"""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from protocol.primitives import Buffer

_RECEIVE_BYTES = 1024 * 1024
_PATIENCE_S = 30.0


@contextlib.contextmanager
def relay(connections: int) -> Iterator[Callable[[Iterable[Buffer]], int]]:
    """Yield a function that sends pieces and returns their size in bytes; at most `connections` calls at once."""
    with socket.create_server(("127.0.0.1", 0), backlog=connections) as listener:
        listener.settimeout(_PATIENCE_S)
        command = [sys.executable, "-m", __spec__.name, str(listener.getsockname()[1]), str(connections)]
        with subprocess.Popen(command), contextlib.ExitStack() as stack:
            free = [stack.enter_context(listener.accept()[0]) for _ in range(connections)]

            def send(pieces: Iterable[Buffer]) -> int:
                connection, size = free.pop(), 0
                for piece in pieces:
                    connection.sendall(piece)
                    size += len(piece)
                free.append(connection)
                return size

            yield send


def _discard(port: int, connections: int) -> None:
    def receive(connection: socket.socket) -> None:
        buffer = bytearray(_RECEIVE_BYTES)
        with connection:
            while connection.recv_into(buffer):
                pass

    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(receive, [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]))


if __name__ == "__main__":
    _discard(int(sys.argv[1]), int(sys.argv[2]))
