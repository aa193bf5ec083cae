"""Quotas on created and deleted partitions: token buckets for `controller_mutation_rate` (KIP-599).

A bucket fills at the quota's rate, up to a burst. A request passes while its bucket is not negative, and may make it
negative; then strict requests are rejected and older clients throttled. Buckets are soft state of the active
controller; a dropped one starts full again.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from broker.metadata.controller.state import ControllerState, MutationQuotaSettings
from broker.metadata.image.quota_image import ClientQuotasImage, QuotaEntity
from broker.metadata.image.quota_precedence import Sharers, applied_quota
from broker.rates.sensor_table import Sensor, SensorTable
from broker.rates.windowed_rate import QuotaWindows
from protocol.errors import ErrorCode, KafkaError

MUTATION_RATE: Final = "controller_mutation_rate"


class _Bucket(Sensor):
    """The tokens of the clients that share a quota, and what is measured of these clients."""

    __slots__ = ("_burst", "_limit", "tokens", "updated_ms")

    def __init__(self, windows: QuotaWindows) -> None:
        super().__init__(windows)
        self.tokens = math.inf  # a full bucket, whatever the quota
        self.updated_ms = 0
        self._limit = self._burst = 0.0

    def refill(self, limit: float, burst: float, now_ms: int) -> None:
        """Add the tokens since the last call, by the present quota."""
        self._limit, self._burst = limit, burst
        self.tokens = self.tokens_at(now_ms)
        self.updated_ms = now_ms

    def tokens_at(self, now_ms: int) -> float:
        """Return the tokens at a later time."""
        return min(self._burst, self.tokens + self._limit * max(0, now_ms - self.updated_ms) / 1000)


class MutationFigures(NamedTuple):
    """A quota at one moment: partitions per second, throttle time in milliseconds, and tokens."""

    sharers: Sharers
    rate: float
    throttle_ms: float
    tokens: float


class MutationQuota:
    """The quota of one request. `throttle_ms` is how long the client should pause afterwards."""

    def __init__(self, bucket: _Bucket | None, rate: float, *, strict: bool) -> None:
        self._bucket = bucket
        self._rate = rate
        self._strict = strict
        self.throttle_ms = 0

    def charge(self, partitions: int) -> None:
        """Charge partitions.

        Raises KafkaError THROTTLING_QUOTA_EXCEEDED without charging if a strict quota is exceeded.
        """
        bucket = self._bucket
        if bucket is None:
            return
        if self._strict and bucket.tokens < 0:
            self._throttle(bucket)
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        bucket.tokens -= partitions
        bucket.rate.record(partitions, bucket.updated_ms)
        if not self._strict and bucket.tokens < 0:
            self._throttle(bucket)

    def _throttle(self, bucket: _Bucket) -> None:
        is_first = not self.throttle_ms
        self.throttle_ms = round(-bucket.tokens / self._rate * 1000)
        if is_first:
            bucket.throttles.record(self.throttle_ms, bucket.updated_ms)


UNLIMITED: Final = MutationQuota(None, 0.0, strict=False)


class MutationQuotas:
    """The buckets of all clients with a quota."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        settings = state.settings.mutation_quota
        windows = QuotaWindows(settings.window_count, settings.window_size_ms)
        self._buckets: SensorTable[Sharers, _Bucket] = SensorTable(partial(_Bucket, windows))

    def of(self, principal: str, client_id: str, *, strict: bool, now_ms: int) -> MutationQuota:
        """Return the quota of a request by `principal` (`Type:name`), with its bucket refilled."""
        user = principal.partition(":")[2]
        quotas = self._state.image.client_quotas
        if not quotas.entities:
            return UNLIMITED
        applied = applied_quota(partial(mutation_rate, quotas), user, client_id)
        if applied is None:
            return UNLIMITED
        burst = applied.rate * _burst_seconds(self._state.settings.mutation_quota)
        bucket = self._buckets.get(applied.sharers, now_ms)
        bucket.refill(applied.rate, burst, now_ms)
        return MutationQuota(bucket, applied.rate, strict=strict)

    def figures(self, now_ms: int, limit: int) -> Iterator[MutationFigures]:
        """Yield the `limit` most recently used quotas."""
        for sharers, bucket in self._buckets.recent(limit):
            rate, throttle_ms = bucket.rate.per_second(now_ms), bucket.throttles.average(now_ms)
            yield MutationFigures(sharers, rate, throttle_ms, bucket.tokens_at(now_ms))

    def clear(self) -> None:
        self._buckets.clear()


def mutation_rate(quotas: ClientQuotasImage, entity: QuotaEntity) -> float | None:
    """Return the partitions per second that an entity may create and delete; None without a quota."""
    return quotas.of(entity).get(MUTATION_RATE)


def _burst_seconds(settings: MutationQuotaSettings) -> float:
    return settings.window_count * settings.window_size_ms / 1000
