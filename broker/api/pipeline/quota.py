"""Client quotas at the end of a request: throttle times in responses, and muted connections (KIP-13, KIP-124, KIP-219).

A produce is charged when its batches are appended. Its connection is muted from then on, although the response waits
for replicas: a pipelining client would otherwise have dozens of requests appended before the first response throttles
it.

A response leaves at once with its throttle time; the connection's next request waits that long. The larger throttle
time of several violated quotas counts.

A request's time is what it occupies the event loop for: decoding, each step of its handler, encoding. 100 percent is
the whole loop, where Kafka has 100 percent for each of its threads. Reading and writing sockets, threads, and waiting
are not measured, nor are rounds of a fetch that waits for data. The time of encoding is recorded after the response and
counts for the client's next request, as network threads' time does in Kafka.
"""

from typing import Final, Protocol

from broker.clock import Clock
from broker.net.request import ConnectionInfo, Request
from broker.quotas.client_quotas import BrokerQuotas, percent_of_loop, quota_client
from protocol.api_keys import ApiKey
from protocol.messages import Message

EXEMPT_APIS: Final = frozenset({ApiKey.WRITE_TXN_MARKERS})
"""Requests of brokers, which are never throttled. Fetches of followers are exempt as well."""


class RequestQuota(Protocol):
    """Accounts for the requests of clients. All times are milliseconds of the monotonic clock."""

    @property
    def is_enabled(self) -> bool:
        """Whether requests have to be measured."""
        ...

    def on_waiting(self, request: Request, now_ms: float) -> None:
        """Charge the bytes of a request whose response is not ready, and mute the connection."""
        ...

    def on_response(self, request: Request, response: Message | None, now_ms: float) -> None:
        """Charge a request before its response is encoded: set its throttle time, and mute the connection."""
        ...

    def on_encoded(self, request: Request, now_ms: float) -> None:
        """Record the time since `on_response`."""
        ...


class FetchQuota(Protocol):
    """The quotas that a consumer's fetch meets before its response is built."""

    @property
    def is_enabled(self) -> bool:
        """Whether fetches have to be measured."""
        ...

    def max_fetch_bytes(self, request: Request) -> float | None:
        """Return the bytes that a client may fetch after a pause; None without a quota."""
        ...

    def fetch_throttle_ms(self, request: Request, size_bytes: int) -> int:
        """Charge a fetch of `size_bytes`. Above 0, the response must be empty, and its bytes are not charged."""
        ...


class ClientThrottle:
    """Applies the client quotas of a broker to requests."""

    def __init__(self, quotas: BrokerQuotas, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock

    @property
    def is_enabled(self) -> bool:
        return self._quotas.is_enabled

    def on_waiting(self, request: Request, now_ms: float) -> None:
        if request.header.api_key == ApiKey.PRODUCE:
            client = quota_client(request.connection.principal, request.header.client_id)
            throttle_ms = self._quotas.produce.charge(client, request.size, now_ms)
            request.charged_throttle_ms = throttle_ms
            if throttle_ms > 0:
                mute(request.connection, throttle_ms)

    def on_response(self, request: Request, response: Message | None, now_ms: float) -> None:
        header, quotas = request.header, self._quotas
        client = quota_client(request.connection.principal, header.client_id)
        percent = percent_of_loop(request.take_busy_ms(now_ms))
        bytes_throttle_ms = request_throttle_ms = 0
        if header.api_key == ApiKey.PRODUCE:
            charged_ms = request.charged_throttle_ms
            charge = quotas.produce.charge
            bytes_throttle_ms = charge(client, request.size, now_ms) if charged_ms is None else charged_ms
        if response is None or request.is_quota_exempt or header.api_key in EXEMPT_APIS:
            self._record_exempt(percent, now_ms)
        else:
            request_throttle_ms = quotas.request.charge(client, percent, now_ms)
        throttle_ms = max(bytes_throttle_ms, request_throttle_ms)
        if throttle_ms > 0:
            violated = quotas.produce if bytes_throttle_ms > request_throttle_ms else quotas.request
            violated.on_throttled(client, throttle_ms, now_ms)
            if request.charged_throttle_ms is None or request_throttle_ms > bytes_throttle_ms:
                mute(request.connection, throttle_ms)
            report_throttle(response, throttle_ms)

    def on_encoded(self, request: Request, now_ms: float) -> None:
        percent = percent_of_loop(request.take_busy_ms(now_ms))
        if request.is_quota_exempt or request.header.api_key in EXEMPT_APIS:
            self._record_exempt(percent, now_ms)
        else:
            client = quota_client(request.connection.principal, request.header.client_id)
            self._quotas.request.record(client, percent, now_ms)

    def max_fetch_bytes(self, request: Request) -> float | None:
        return self._quotas.fetch.burst(quota_client(request.connection.principal, request.header.client_id))

    def fetch_throttle_ms(self, request: Request, size_bytes: int) -> int:
        now_ms, quotas = self._clock.monotonic_ms(), self._quotas
        client = quota_client(request.connection.principal, request.header.client_id)
        request_throttle_ms = quotas.request.charge(client, percent_of_loop(request.take_busy_ms(now_ms)), now_ms)
        bytes_throttle_ms = quotas.fetch.charge_delivery(client, size_bytes, now_ms)
        throttle_ms = max(bytes_throttle_ms, request_throttle_ms)
        if throttle_ms > 0:
            if bytes_throttle_ms == 0:
                quotas.fetch.take_back(client, size_bytes, now_ms)
            if bytes_throttle_ms > request_throttle_ms:  # `on_response` notes a violated request quota
                quotas.fetch.on_throttled(client, bytes_throttle_ms, now_ms)
        return throttle_ms

    def _record_exempt(self, percent: float, now_ms: float) -> None:
        if self._quotas.request.is_enabled:
            self._quotas.exempt.record(percent, now_ms)


def mute(connection: ConnectionInfo, throttle_ms: float) -> None:
    """Mute a connection; a longer time that is set already stays."""
    connection.mute_ms = max(connection.mute_ms, throttle_ms)


def report_throttle(response: Message | None, throttle_ms: float) -> None:
    """Set the throttle time of a response that has one; a longer time that is set already stays."""
    if response is not None and getattr(response, "throttle_time_ms", throttle_ms) < throttle_ms:
        response.throttle_time_ms = int(throttle_ms)  # type: ignore[attr-defined]
