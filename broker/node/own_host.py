"""The host of a listener without a host: the canonical name of this machine, as in Kafka."""

import socket
from functools import cache

_NO_NAME = "localhost"


@cache
def own_host() -> str:
    """Return the canonical name, looked up once, or `localhost` if it does not resolve. May query a name server."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, flags=socket.AI_CANONNAME)
    except OSError:
        return _NO_NAME
    return found[0][3] or socket.gethostname()
