"""What a listener that names no host is reached at: the canonical name of this machine, as Kafka has it."""

import socket
from functools import cache

_NO_NAME = "localhost"


@cache
def own_host() -> str:
    """Looked up once, which may ask a name server. A machine whose name nobody knows is only reached by itself."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, flags=socket.AI_CANONNAME)
    except OSError:
        return _NO_NAME
    return found[0][3] or socket.gethostname()
