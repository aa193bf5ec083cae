"""TLS on a blocking socket, for the command line and for batch jobs."""

import os
import socket
import ssl
from functools import lru_cache
from typing import Final

from broker.tls.contexts import client_context
from broker.tls.failures import explain
from broker.tls.settings import SettingsSource, read_tls_settings

CACHED_CONTEXTS: Final = 4
"""A process has one client configuration, or few; reading a PKCS12 store takes a hundred milliseconds."""

TlsProperties = tuple[tuple[str, str], ...]


def secure(opened: socket.socket, host: str, properties: TlsProperties) -> ssl.SSLSocket:
    """Shake hands as a client, within the timeout of the socket, and return the secure socket.

    Closes `opened` on failure. Raises ConfigError for the properties, and OSError with the reason in words.
    """
    try:
        return _context(properties, _file_states(properties)).wrap_socket(opened, server_hostname=host)
    except (ssl.SSLError, ValueError) as error:  # the latter for a name that is no host name
        opened.close()
        raise ConnectionError(0, f"the TLS hand-shake failed: {explain(error)}") from error
    except BaseException:
        opened.close()
        raise


def _file_states(properties: TlsProperties) -> tuple[object, ...]:
    """Return the states of the stores, so that a long-lived client loads a store that has changed."""
    return tuple(_file_state(value) for name, value in properties if name.endswith(".location"))


def _file_state(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@lru_cache(maxsize=CACHED_CONTEXTS)
def _context(properties: TlsProperties, _states: tuple[object, ...]) -> ssl.SSLContext:
    return client_context(read_tls_settings(SettingsSource(dict(properties).get)))
