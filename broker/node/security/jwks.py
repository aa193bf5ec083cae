"""The key set of an identity provider, read off the event loop and kept until its next read (KIP-768).

A read happens at the first login after `sasl.oauthbearer.jwks.endpoint.refresh.ms`, and at a login with an unknown key,
but after a read of the latter kind not again within `…retry.backoff.max.ms`. The last key set serves while reads fail.
"""

import asyncio
import logging
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from broker.clock import Clock
from broker.sasl.server.access_tokens import VerificationKey, parse_keys
from protocol.lazy_dataclass import lazy_dataclass

log = logging.getLogger("broker.sasl")

KEY_SET_BYTES_MAX: Final = 1 << 20
_TIMEOUT_S: Final = 10.0
_SCHEMES: Final = ("file", "http", "https")


@lazy_dataclass(frozen=True, slots=True)
class KeySetSettings:
    """The URL of a key set (file, http or https), and times in ms."""

    url: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


class KeySetSource:
    """The keys at a URL. `read` returns the document; it runs on a thread and raises OSError."""

    def __init__(self, settings: KeySetSettings, clock: Clock, read: Callable[[str], bytes] | None = None) -> None:
        self._settings = settings
        self._clock = clock
        self._read = read_key_set if read is None else read
        self._keys: Sequence[VerificationKey] = ()
        self._fresh_until_ms = -float("inf")
        self._next_read_ms = -float("inf")
        self._failures = 0
        self._reading: asyncio.Task[None] | None = None

    @property
    def keys(self) -> Sequence[VerificationKey]:
        """Return the keys of the last successful read."""
        return self._keys

    @property
    def is_fresh(self) -> bool:
        """Whether the keys are younger than the refresh time."""
        return self._clock.monotonic_ms() < self._fresh_until_ms

    async def refresh(self) -> None:
        """Read the keys, join a read under way, or return at once if the last one is too recent. Errors are logged."""
        if self._reading is None:
            if self._clock.monotonic_ms() < self._next_read_ms:
                return
            self._reading = asyncio.get_running_loop().create_task(self._read_once())
            self._reading.add_done_callback(self._on_read)
        await asyncio.shield(self._reading)

    def _on_read(self, _: asyncio.Task[None]) -> None:
        self._reading = None

    async def _read_once(self) -> None:
        settings = self._settings
        try:
            keys = parse_keys(await asyncio.to_thread(self._read, settings.url))
        except (OSError, ValueError) as error:
            wait_ms = min(settings.retry_backoff_ms << min(self._failures, 20), settings.retry_backoff_max_ms)
            self._failures += 1
            self._next_read_ms = self._clock.monotonic_ms() + wait_ms
            log.warning('could not read the key set url=%s reason="%s"', shown_url(settings.url), error)
            return
        now_ms = self._clock.monotonic_ms()
        self._keys, self._failures = keys, 0
        self._fresh_until_ms = now_ms + settings.refresh_ms
        self._next_read_ms = now_ms + min(settings.retry_backoff_max_ms, settings.refresh_ms)


def key_set_url_problem(url: str) -> str | None:
    """Return why a URL cannot name a key set; None if it can."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in _SCHEMES:
        return f"is not a URL with one of the schemes {', '.join(_SCHEMES)}"
    if parts.scheme == "file":
        return None if Path(urllib.request.url2pathname(parts.path)).is_file() else "names a file that does not exist"
    return None if parts.hostname else "names no host"


def shown_url(url: str) -> str:
    """Return a URL without user, password, query and fragment, which may hold secrets."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def read_key_set(url: str) -> bytes:
    """Return the document at a URL. Raise OSError, also for one that is too large. Blocks for seconds."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        with Path(urllib.request.url2pathname(parts.path)).open("rb") as file:
            return _limited(file.read(KEY_SET_BYTES_MAX + 1))
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
        return _limited(answer.read(KEY_SET_BYTES_MAX + 1))


def _limited(document: bytes) -> bytes:
    if len(document) > KEY_SET_BYTES_MAX:
        raise OSError(f"the key set has more than {KEY_SET_BYTES_MAX} bytes")
    return document
