"""A port at which nobody listens, as long as a test needs it.

A port that was listened on a moment ago may be given to somebody else, or to the very connection that looks for it.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def closed_port() -> Iterator[int]:
    """Taken all the while, so that connections to it are refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])
