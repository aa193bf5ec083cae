"""Quotas on created and deleted partitions: token buckets for `controller_mutation_rate` (KIP-599).

A bucket fills at the quota's rate, up to a burst. A request passes while its bucket is not negative, and may make it
negative; then strict requests are rejected and older clients throttled. Buckets are soft state of the active
controller.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from broker.metadata.controller.state import ControllerState, MutationQuotaSettings
from broker.metadata.image.quota_image import ClientQuotasImage, QuotaEntity
from broker.metadata.image.quota_precedence import Sharers, applied_quota
from protocol.errors import ErrorCode, KafkaError

MUTATION_RATE: Final = "controller_mutation_rate"
# A dropped bucket starts full again; more clients than this at once need no separate accounting.
MAX_BUCKETS: Final = 10_000


@dataclass(slots=True)
class _Bucket:
    tokens: float
    updated_ms: int

    def refill(self, rate: float, burst: float, now_ms: int) -> None:
        self.tokens = min(burst, self.tokens + rate * max(0, now_ms - self.updated_ms) / 1000)
        self.updated_ms = now_ms


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
        if self._bucket is None:
            return
        if self._strict and self._bucket.tokens < 0:
            self._throttle()
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self._bucket.tokens -= partitions
        if not self._strict and self._bucket.tokens < 0:
            self._throttle()

    def _throttle(self) -> None:
        assert self._bucket is not None
        self.throttle_ms = round(-self._bucket.tokens / self._rate * 1000)


UNLIMITED: Final = MutationQuota(None, 0.0, strict=False)


class MutationQuotas:
    """The buckets of all clients with a quota."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._buckets: dict[Sharers, _Bucket] = {}  # least recently used first

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
        bucket = self._buckets.pop(applied.sharers, None) or _Bucket(burst, now_ms)
        self._buckets[applied.sharers] = bucket
        if len(self._buckets) > MAX_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        bucket.refill(applied.rate, burst, now_ms)
        return MutationQuota(bucket, applied.rate, strict=strict)

    def clear(self) -> None:
        self._buckets.clear()


def mutation_rate(quotas: ClientQuotasImage, entity: QuotaEntity) -> float | None:
    """Return the partitions per second that an entity may create and delete; None without a quota."""
    return quotas.of(entity).get(MUTATION_RATE)


def _burst_seconds(settings: MutationQuotaSettings) -> float:
    return settings.window_count * settings.window_size_ms / 1000
