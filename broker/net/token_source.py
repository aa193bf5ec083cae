"""The token of an OAUTHBEARER login: fetched by a thread, shared by connections, refreshed before it ends (KIP-255).

Logins with equal settings share a source, as in Kafka. The thread starts with the first request for a token and ends
with the last login that refers to the source, or with a failure while there is no usable token.
"""

import contextlib
import random
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Final

from broker.clock import SystemClock
from broker.logs import EventLog
from broker.sasl.client.oauth_settings import OAuthSettings, Retrieval
from broker.sasl.client.oauthbearer import OAUTHBEARER, OAuthToken
from broker.sasl.client.token_refresh import FAILED_REFRESH_DELAY_MS, RefreshSchedule, refresh_time_ms
from broker.sasl.mechanism import AuthenticationFailed

_log: Final = EventLog("broker.net.token_source")
_SYSTEM_CLOCK: Final = SystemClock()


class TokenSource:
    """A token that is kept fresh. Methods may be called from all threads and do not block."""

    def __init__(
        self,
        retrieve: Callable[[], OAuthToken],
        schedule: RefreshSchedule,
        now_ms: Callable[[], int] = _SYSTEM_CLOCK.now_ms,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._retrieve = retrieve
        self._schedule = schedule
        self._now_ms = now_ms
        self._spread = spread
        self._lock = threading.Lock()
        self._token: OAuthToken | None = None
        self._pending: Future[None] | None = None
        self._has_thread = False
        self._wake: SimpleQueue[None] = SimpleQueue()  # its `put` may be called by the garbage collector
        weakref.finalize(self, self._wake.put, None)

    def token(self) -> OAuthToken:
        """Return the newest token. Raise AuthenticationFailed if there was none yet."""
        token = self._token
        if token is None:
            raise AuthenticationFailed("there is no access token yet")
        return token

    def request(self) -> Future[None] | None:
        """Return None if there is a token that has not ended; else a future of the attempt to get one.

        The future's exception is AuthenticationFailed; its message names the mechanism.
        """
        with self._lock:
            if self._token is not None and self._now_ms() < self._token.expiry_ms:
                return None
            if self._pending is None:
                self._pending = Future()
                if self._has_thread:
                    self._wake.put(None)
                else:
                    self._start()
            return self._pending

    def _start(self) -> None:
        self._has_thread = True
        arguments = (weakref.ref(self), self._wake)
        threading.Thread(target=_keep_fresh, args=arguments, name="ottla-oauth-login", daemon=True).start()

    def refresh(self) -> float | None:
        """Fetch a token; return the seconds until the next refresh, or None if the thread is to end."""
        try:
            token = self._retrieve()
        except AuthenticationFailed as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001  logins must learn of every failure
            _log.error("fetching an access token failed unexpectedly", type=type(error).__name__)
            return self._failed(AuthenticationFailed("the access token could not be fetched"))
        now_ms = self._now_ms()
        with self._lock:
            self._token = token
            pending, self._pending = self._pending, None
        if pending is not None:
            pending.set_result(None)
        return max(0.0, refresh_time_ms(self._schedule, token, now_ms, self._spread()) - now_ms) / 1000

    def _failed(self, error: AuthenticationFailed) -> float | None:
        with self._lock:
            pending, self._pending = self._pending, None
            is_usable = self._token is not None and self._now_ms() < self._token.expiry_ms
            self._has_thread = is_usable
        if is_usable:
            _log.warning("refreshing an access token failed", reason=str(error))
        if pending is not None:
            pending.set_exception(AuthenticationFailed(f"{OAUTHBEARER}: {error}"))
        return FAILED_REFRESH_DELAY_MS / 1000 if is_usable else None


def _keep_fresh(reference: "weakref.ref[TokenSource]", wake: SimpleQueue[None]) -> None:
    """Refresh until nobody refers to the source."""
    while (source := reference()) is not None:
        delay_s = source.refresh()
        del source  # the thread alone does not keep it alive
        if delay_s is None:
            return
        with contextlib.suppress(Empty):
            wake.get(timeout=min(delay_s, threading.TIMEOUT_MAX))


def _retriever(settings: OAuthSettings) -> Callable[[], OAuthToken]:
    from broker.net.token_retrieval import retrieve_token  # local import: other logins need no HTTP

    assert isinstance(settings.source, Retrieval), "unsecured tokens are made, not fetched"
    retrieval = settings.source
    return lambda: retrieve_token(retrieval)


_sources: "weakref.WeakValueDictionary[OAuthSettings, TokenSource]" = weakref.WeakValueDictionary()
_sources_lock: Final = threading.Lock()


def shared_source(settings: OAuthSettings) -> TokenSource:
    """Return the source for these settings, the same for all logins of the process. Fetches nothing yet."""
    with _sources_lock:
        source = _sources.get(settings)
        if source is None:
            source = TokenSource(_retriever(settings), settings.schedule)
            _sources[settings] = source
        return source
