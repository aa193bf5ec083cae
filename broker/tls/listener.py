"""The TLS side of a listener: contexts that may be replaced while it serves, and the principals of its peers."""

import os
import ssl
import stat
from typing import Final

from broker.config.errors import ConfigError
from broker.tls.contexts import client_context, server_context
from broker.tls.distinguished_name import subject_of
from broker.tls.principal_rules import PrincipalRules
from broker.tls.settings import TlsSettings
from protocol.lazy_dataclass import lazy_dataclass

ANONYMOUS: Final = "User:ANONYMOUS"
_KEY_STORE: Final = "ssl.keystore.location"

FileState = tuple[int, int, int] | None
"""Modification time, size and inode of a file; None for a file that cannot be read."""


@lazy_dataclass(frozen=True, slots=True)
class LoadedTls:
    """Contexts as built from settings, and the state of the files at that time. `server` is None where none serves."""

    settings: TlsSettings
    rules: PrincipalRules
    files: tuple[FileState, ...]
    server: ssl.SSLContext | None
    client: ssl.SSLContext


class ListenerTls:
    """The present contexts of a listener; new connections take what `replace` has set last."""

    def __init__(self, loaded: LoadedTls) -> None:
        self._loaded = loaded

    @property
    def loaded(self) -> LoadedTls:
        """The present contexts with their settings."""
        return self._loaded

    @property
    def server_context(self) -> ssl.SSLContext:
        """The context of accepted connections."""
        assert self._loaded.server is not None, "the listener is bound on this node"
        return self._loaded.server

    @property
    def client_context(self) -> ssl.SSLContext:
        """The context of connections to this listener of other nodes."""
        return self._loaded.client

    def principal_of(self, certificate: bytes | None) -> str:
        """Return the principal of a peer by its verified certificate in DER.

        Raise NoRuleApplies, or ValueError for a certificate that cannot be parsed.
        """
        if certificate is None:
            return ANONYMOUS
        return f"User:{self._loaded.rules.name_of(subject_of(certificate))}"

    def replace(self, loaded: LoadedTls) -> None:
        """Use other contexts for new connections; open ones keep theirs."""
        self._loaded = loaded


def load_tls(listener: str, settings: TlsSettings, rules: PrincipalRules, *, serves: bool) -> LoadedTls:
    """Build the contexts of a listener. Blocks for reading files. Raise ConfigError."""
    if serves and settings.key_store is None:
        raise ConfigError(
            _KEY_STORE,
            f"{_KEY_STORE} must be set, or ssl.keystore.key with ssl.keystore.certificate.chain: listener {listener} "
            "has the security protocol SSL and needs a certificate.",
        )
    files = file_states(settings.files)  # before the files are read: a change meanwhile is loaded at the next check
    server = server_context(settings) if serves else None
    return LoadedTls(settings, rules, files, server, client_context(settings))


def warning_about_mode(settings: TlsSettings) -> str | None:
    """Return a sentence about a key store that every user of the machine may read; None for a safe one. Blocks."""
    store = settings.key_store
    if store is None or store.location is None:
        return None
    try:
        is_open = os.stat(store.location).st_mode & stat.S_IROTH
    except OSError:
        return None
    if not is_open:
        return None
    return f"{store.key}: every user of this machine may read the private key in {store.location}; use mode 600."


def file_states(paths: tuple[str, ...]) -> tuple[FileState, ...]:
    """Return the state of each file. Blocks."""
    return tuple(_file_state(path) for path in paths)


def _file_state(path: str) -> FileState:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
