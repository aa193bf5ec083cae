"""Access keys in a properties file, such as `aws.access.key.id`, read again when the file changes."""

import threading
from typing import NamedTuple

import javaproperties

from storage.files import FileSystem, read_file
from storage.tiered.errors import StoreUnavailable

_PREFIXES = ("rsm.config.storage.", "storage.", "")
"""Prefixes of the keys; a node's own settings have one."""


class AccessKeys(NamedTuple):
    access_key: str
    secret_key: str
    token: str | None = None
    account_id: str | None = None


class _Version(NamedTuple):
    modified_ms: int
    size: int


class CredentialsFile:
    """Reader of a credentials file; thread-safe."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._lock = threading.Lock()
        self._seen: _Version | None = None
        self._keys: AccessKeys | None = None

    def read(self) -> AccessKeys:
        """Return the newest keys; the former ones while the file is missing or incomplete. Raises StoreUnavailable."""
        with self._lock:
            try:
                self._refresh()
            except (OSError, ValueError) as error:
                if self._keys is None:
                    raise StoreUnavailable(f"{self._path} contains no access keys: {error}") from error
            assert self._keys is not None
            return self._keys

    def _refresh(self) -> None:
        version = _Version(self._fs.modified_ms(self._path), self._fs.size(self._path))
        if version != self._seen:
            self._keys = _parse(read_file(self._fs, self._path).decode())
            self._seen = version


def _parse(text: str) -> AccessKeys:
    properties = javaproperties.loads(text)

    def find(key: str) -> str | None:
        found = [properties[prefix + key] for prefix in _PREFIXES if properties.get(prefix + key)]
        return str(found[0]) if found else None

    access_key, secret_key = find("aws.access.key.id"), find("aws.secret.access.key")
    if access_key is None or secret_key is None:
        raise ValueError("it needs aws.access.key.id and aws.secret.access.key")
    return AccessKeys(access_key, secret_key, find("aws.session.token"))
