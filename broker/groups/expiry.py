"""Expiry of offsets that have been unused for long, and of groups that become empty by it (KIP-211).

The whole shard is checked every `offsets.retention.check.interval.ms`, a slice of groups at a time, so that no request
waits for it. The time from which the retention counts depends on the group:

| group | an offset expires, unless a member reads the topic, when |
|---|---|
| Empty, with a protocol type | the group has been empty for the retention time |
| "consumer" and Stable, subscriptions known | it was committed that long ago |
| without protocol type (offsets only), consumer or streams group | it was committed that long ago |
| any other | never |

An old client may have set an expiry time with its commit, which then applies instead. No offset with an open
transaction expires. An empty group is removed with its last offset, or at once if it has none and no member is pending.
Kafka removes such groups without regard to pending members, and to open transactions of a group without committed
offsets. Share groups have no committed offsets, and stay until they are deleted.
"""

from collections.abc import Callable

from broker.coordination.shard import CoordinatorResult
from broker.coordination.timers import CoordinatorClock
from broker.groups.classic import ClassicGroup
from broker.groups.config import GroupConfig
from broker.groups.deletion import tombstones_of
from broker.groups.directory import AnyGroup, GroupDirectory
from broker.groups.metrics import GroupMetrics
from broker.groups.offsets import OffsetStore
from broker.groups.rebalance import Outcome
from broker.groups.records import CommittedOffset, GroupRecord, OffsetKey, offset_removed
from broker.groups.share.group import ShareGroup
from broker.groups.state import GroupState
from broker.groups.timers import ExpiryDue, GroupTimers

_GROUPS_PER_SLICE = 50  # with a few offsets each, a slice takes well below a millisecond

_Base = Callable[[CommittedOffset], int]


class OffsetExpiry:
    """Writes tombstones for expired offsets and groups."""

    def __init__(
        self,
        groups: GroupDirectory,
        offsets: OffsetStore,
        timers: GroupTimers,
        config: GroupConfig,
        metrics: GroupMetrics,
        clock: CoordinatorClock,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._timers = timers
        self._config = config
        self._metrics = metrics
        self._clock = clock

    def start(self) -> None:
        """Schedule the first check one interval from now."""
        self._timers.start_expiry(self._config.offsets_retention_check_interval_ms, ExpiryDue())

    def run(self, due: ExpiryDue) -> Outcome:
        """Check one slice of groups. First schedule the next one, so that an error does not end the checks."""
        group_ids = tuple(self._groups.ids()) if due.is_new_round else due.remaining
        self._schedule_rest(group_ids[_GROUPS_PER_SLICE:])
        records: list[GroupRecord] = []
        for group_id in group_ids[:_GROUPS_PER_SLICE]:
            group = self._groups.find(group_id)
            if group is not None and not isinstance(group, ShareGroup):
                self._expire(group, records)
        return CoordinatorResult(None, records, atomic=False)

    def _schedule_rest(self, rest: tuple[str, ...]) -> None:
        if rest:
            self._timers.start_expiry(0, ExpiryDue(rest, is_new_round=False))
        else:
            self.start()

    def _expire(self, group: AnyGroup, records: list[GroupRecord]) -> None:
        had_offsets = self._offsets.has_offsets(group.group_id)
        expired = self._expired_keys(group) if had_offsets else []
        if had_offsets and not expired:
            return
        self._metrics.offset_expirations += len(expired)
        records.extend(offset_removed(key) for key in expired)
        is_unused = group.is_empty and not (isinstance(group, ClassicGroup) and group.pending_joins)
        if is_unused and self._holds_nothing_but(group.group_id, expired):
            records.extend(tombstones_of(group))

    def _holds_nothing_but(self, group_id: str, expired: list[OffsetKey]) -> bool:
        stored = sum(len(partitions) for partitions in self._offsets.of_group(group_id).values())
        return stored == len(expired) and not self._offsets.has_open_transaction(group_id)

    def _expired_keys(self, group: AnyGroup) -> list[OffsetKey]:
        base = _base_of(group)
        if base is None:
            return []
        now_ms = self._clock.now_ms()
        keys = (
            (OffsetKey(group.group_id, topic, partition), value)
            for topic, partitions in self._offsets.of_group(group.group_id).items()
            if not group.is_subscribed_to(topic)
            for partition, value in partitions.items()
        )
        return [
            key for key, value in keys if self._is_expired(value, base, now_ms) and not self._offsets.is_pending(key)
        ]

    def _is_expired(self, value: CommittedOffset, base: _Base, now_ms: int) -> bool:
        if value.expire_ms >= 0:
            return now_ms >= value.expire_ms
        return now_ms - base(value) >= self._config.offsets_retention_ms


def _base_of(group: AnyGroup) -> _Base | None:
    """Return the time from which the retention counts for an offset of the group; None when none expires."""
    if not isinstance(group, ClassicGroup) or group.protocol_type is None:
        return _commit_time
    if group.is_empty:
        since_ms = group.state_since_ms
        return _commit_time if since_ms < 0 else lambda _: since_ms
    is_understood = group.uses_consumer_protocol and group.topics is not None
    return _commit_time if is_understood and group.state is GroupState.STABLE else None


def _commit_time(value: CommittedOffset) -> int:
    return value.commit_ms
