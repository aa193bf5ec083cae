"""Authentication of HTTP requests: user names with passwords (Basic, RFC 7617) and tokens (Bearer, RFC 6750). No IO.

Health checks stay open: probes of orchestrators have no credentials, and learn no more than whether the node serves.
"""

import base64
import hmac
from collections.abc import Iterable
from typing import Final

OPEN_PREFIX: Final = "/health/"
CHALLENGE: Final = 'Basic realm="ottla", charset="UTF-8", Bearer realm="ottla"'


class HttpGuard:
    """Admits requests that carry one of the credentials."""

    __slots__ = ("_accepted", "_users")

    def __init__(self, credentials: Iterable[str]) -> None:
        """Take lines of a credentials file: `NAME:PASSWORD`, or a token without colon. Raise ValueError for none."""
        lines = [line.strip() for line in credentials]
        self._accepted = tuple(_value(line) for line in lines if line and not line.startswith("#"))
        self._users = {_value(line): line.partition(":")[0] for line in lines if ":" in line}
        if not self._accepted:
            raise ValueError("has no credentials; each line is NAME:PASSWORD or a token")

    def admits(self, path: str, authorization: bytes | None) -> bool:
        """Whether a request of `path` with this Authorization header may be answered, in constant time."""
        if path.startswith(OPEN_PREFIX):
            return True
        scheme, _, rest = (authorization or b"").partition(b" ")
        given = scheme.lower() + b" " + rest.strip()
        found = [hmac.compare_digest(given, accepted) for accepted in self._accepted]  # all: none is found faster
        return any(found)

    def user_of(self, authorization: bytes | None) -> str | None:
        """Return the user of an Authorization header that `admits` has accepted; None for a token or no header."""
        scheme, _, rest = (authorization or b"").partition(b" ")
        return self._users.get(scheme.lower() + b" " + rest.strip())


def _value(line: str) -> bytes:
    if ":" in line:
        return b"basic " + base64.b64encode(line.encode())
    return b"bearer " + line.encode()
