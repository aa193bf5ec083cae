"""Settings of groups, with Kafka's names (dots as underscores) and defaults."""

from typing import Final

from protocol.lazy_dataclass import lazy_dataclass

# A member without its first JoinGroup response cannot send heartbeats, so its session timeout does not apply yet. Kafka
# gives it this time, which is not configurable: a client can retry a lost JoinGroup, and an abandoned member expires.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000


@lazy_dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of the group coordinator. Times are in milliseconds."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    group_coordinator_append_linger_ms: int = -1
    """Time for which a write waits for others: 0 none, −1 until the requests that arrived together are handled."""
