"""What an administrator can set for groups, with Kafka's names (dots as underscores) and defaults."""

from dataclasses import dataclass
from typing import Final

# A member that has not got its first answer cannot send heartbeats, so its session timeout says nothing yet. Kafka
# gives it this long, not configurable: time for a client to retry a lost JoinGroup, yet an end to members nobody
# waits for.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of the group coordinator. Times are milliseconds."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    group_coordinator_append_linger_ms: int = -1
    """How long a write may wait for company: 0 not at all, −1 until the requests that came in together are handled."""
