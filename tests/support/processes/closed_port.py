"""A port on which no process listens.

A port that was closed a moment ago may be given to another process, or to the connecting socket itself.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def closed_port() -> Iterator[int]:
    """Bind the port without listening, so that connections are refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])
