"""The time of a token's refresh, by the arithmetic of Kafka's ExpiringCredentialRefreshingLogin (KIP-255)."""

from typing import Final

from broker.sasl.client.oauthbearer import OAuthToken
from protocol.lazy_dataclass import lazy_dataclass

FAILED_REFRESH_DELAY_MS: Final = 10_000
"""Kafka's wait after a refresh that failed."""


@lazy_dataclass(frozen=True, slots=True)
class RefreshSchedule:
    """`sasl.login.refresh.*`: shares of a token's life, and seconds."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: int = 60
    buffer_s: int = 300


def refresh_time_ms(schedule: RefreshSchedule, token: OAuthToken, now_ms: int, spread: float) -> int:
    """Return the wall-clock time of the refresh. `spread` is from 0 to 1."""
    if now_ms > token.expiry_ms:
        return now_ms + FAILED_REFRESH_DELAY_MS
    share = schedule.window_factor + schedule.window_jitter * spread
    if now_ms + 1000 * (schedule.min_period_s + schedule.buffer_s) > token.expiry_ms:
        return now_ms + int((token.expiry_ms - now_ms) * share)  # too short a life for both buffers
    start_ms = now_ms if token.start_ms is None else token.start_ms
    proposed_ms = start_ms + int((token.expiry_ms - start_ms) * share)
    latest_ms = token.expiry_ms - 1000 * schedule.buffer_s
    if proposed_ms > latest_ms:
        return latest_ms
    return max(proposed_ms, now_ms + 1000 * schedule.min_period_s)
