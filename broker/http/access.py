"""The certificate and the credentials of an HTTP server, which may be replaced while it serves. No IO."""

import ssl

from broker.http.guard import HttpGuard


class HttpAccess:
    """Certificate and credentials: `tls` is None for plain HTTP, `guard` is None where everybody may ask.

    A new connection takes the present certificate, and each request the present credentials. A server that starts with
    TLS keeps it.
    """

    __slots__ = ("guard", "tls")

    def __init__(self, tls: ssl.SSLContext | None = None, guard: HttpGuard | None = None) -> None:
        self.tls = tls
        self.guard = guard
