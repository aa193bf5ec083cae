"""Known kinds of bugs of coordinators whose partitions change their leaders, planted one at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from weakref import WeakKeyDictionary

from broker.coordination.log_fold import LogFold
from broker.coordination.shard import CoordinatorResult, Shard
from broker.groups.consumer import reconciliation
from broker.groups.consumer.assignment import NO_PARTITIONS, Assignment
from broker.groups.consumer.member import MemberAssignment
from broker.groups.consumer.reconciliation import IsHeldByOther
from broker.groups.shard import GroupShard
from broker.runtime.coordinators.hosted_shard import CoordinatorOperation, HostedShard
from broker.runtime.coordinators.shard_loader import ShardLoader
from broker.runtime.coordinators.shard_log import LoadedBatch, ShardLog
from broker.runtime.coordinators.shard_runtime import ShardRuntime
from broker.runtime.coordinators.snapshot_store import CoordinatorSnapshot
from broker.runtime.share.led_share_partition import LedSharePartition
from broker.share.state_requests import StateAnswer
from broker.transactions.shard import TransactionShard
from broker.transactions.state import Transaction
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from tests.simulation.cluster.campaign import (
    run_coordinators,
    run_deposed_coordinators,
    run_members,
    run_migrations,
    run_shares,
)
from tests.simulation.cluster.planted_bug import Planted
from tests.simulation.replication.campaign import Patch

_decide = TransactionShard._decide
_on_groups_loaded = GroupShard.on_loaded
_compute = reconciliation._compute
_load = ShardLoader.load
_on_wake = HostedShard._on_wake
_resign = ShardRuntime.resign
_on_read = LedSharePartition._on_read
_start_loading = ShardRuntime._start_loading
_kept: Final[WeakKeyDictionary[ShardRuntime[Any], dict[int, Shard[Any, Any]]]] = WeakKeyDictionary()
_CATCHERS: Final = frozenset(
    {
        "CommitsAreKept",
        "CommittedOffsetsStay",
        "DecisionsAreOwn",
        "Liveness",
        "OwnersAreSole",
        "PipelineIsExactlyOnce",
        "RecordsAreVisibleOnce",
        "SnapshotLoadsEqualReplays",
        "TransactionsAreAtomic",
    }
)


_MARKERS: Final = frozenset({"MarkersAreDecided"})
_SNAPSHOTS: Final = frozenset({"SnapshotLoadsEqualReplays"})
_SHARES: Final = frozenset({"AcknowledgedRecordsStaySo"})
_OWNERS: Final = frozenset({"OwnersAreSole", "OwnersGiveUpFirst"})
_LIVENESS: Final = frozenset({"Liveness"})


def _answer_at_once(hosted: HostedShard[Any], uncommitted: Any) -> None:
    if uncommitted in hosted._uncommitted:
        hosted._on_outcome(uncommitted, ErrorCode.NONE)


class _CommittedLog:
    """A log that seems to end at the high watermark."""

    def __init__(self, log: ShardLog) -> None:
        self._log = log
        self.end_offset = log.high_watermark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def read(self, offset: int, max_bytes: int) -> Sequence[LoadedBatch]:
        batches = await self._log.read(offset, max_bytes)
        return [batch for batch in batches if batch.next_offset <= self.end_offset]


async def _load_committed(
    loader: ShardLoader, shard: Shard[Any, Any], log: Any, snapshot: CoordinatorSnapshot | None = None
) -> int:
    await _load(loader, shard, _CommittedLog(log), snapshot)
    end: int = log.end_offset
    return end


def _keep_shard(runtime: ShardRuntime[Any], partition: int, leader_epoch: LeaderEpoch | None = None) -> None:
    shard = runtime.shard(partition)
    _resign(runtime, partition, leader_epoch)
    if shard is not None and runtime.shard(partition) is None:
        _kept.setdefault(runtime, {})[partition] = shard


def _reuse_shard(runtime: ShardRuntime[Any], slot: Any) -> None:
    shard = _kept.get(runtime, {}).pop(slot.partition, None)
    if shard is None:
        _start_loading(runtime, slot)
    else:
        log = runtime._open_log(slot.partition)
        runtime._activate(slot, shard, log, log.end_offset)


def _never(_topic_id: object, _partition: int) -> bool:
    return False


def _share_held(
    current: MemberAssignment,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    _held: object,
) -> MemberAssignment:
    return _compute(current, epoch, target_epoch, target, owned, _never)


def _take_owned(
    current: MemberAssignment, epoch: int, target_epoch: int, target: Assignment, _owned: object, held: IsHeldByOther
) -> MemberAssignment:
    return _compute(current, epoch, target_epoch, target, NO_PARTITIONS, held)


def _forget_rebalances(shard: GroupShard) -> None:
    for group in shard.groups:
        group.awaits_rebalance = False
    _on_groups_loaded(shard)


def _load_without_batches(led: LedSharePartition, answer: StateAnswer) -> None:
    state = answer.state
    _on_read(led, answer if state is None else replace(answer, state=replace(state, batches=())))


def _drop_marker(_fold: LogFold, _producer_id: int, _committed: bool, _offset: int) -> None:
    """Fold no marker into a snapshot."""


def _wake_if_due(hosted: HostedShard[Any]) -> None:
    """Miss a timer that fires before its time by the clock."""
    if hosted._clock.monotonic_ms() >= hosted._wake_ms:
        _on_wake(hosted)


def _send_at_once(
    shard: TransactionShard, transactional_id: str, before: Transaction, after: Transaction
) -> CoordinatorResult[Any, None]:
    """Send the markers with the decision, and not after its commit."""
    result = _decide(shard, transactional_id, before, after)
    shard._markers.send(transactional_id, after)
    return CoordinatorResult(None, result.records)


PLANTED_COORDINATORS: Final[Mapping[str, Planted]] = {
    "answering before the records of a coordinator are committed": Planted(
        (Patch(HostedShard, "_watch", _answer_at_once),), _CATCHERS, 40, 21, run_coordinators
    ),
    "loading a coordinator up to the high watermark": Planted(
        (Patch(ShardLoader, "load", _load_committed),), _CATCHERS, 40, 6, run_coordinators
    ),
    "keeping the state of a coordinator over another leader": Planted(
        (Patch(ShardRuntime, "resign", _keep_shard), Patch(ShardRuntime, "_start_loading", _reuse_shard)),
        _CATCHERS,
        40,
        5,
        run_deposed_coordinators,
    ),
    "folding no markers into a coordinator's snapshot": Planted(
        (Patch(LogFold, "end_transaction", _drop_marker),), _SNAPSHOTS, 40, 3, run_coordinators
    ),
    "giving a member partitions that another one has": Planted(
        (Patch(reconciliation, "_compute", _share_held),), _OWNERS, 20, 1, run_members
    ),
    "taking partitions from a member that has not given them up": Planted(
        (Patch(reconciliation, "_compute", _take_owned),), _OWNERS, 20, 2, run_members
    ),
    "forgetting timers whose records could not be written": Planted(
        (Patch(CoordinatorOperation, "has_failed", False),), _LIVENESS, 30, 70, run_migrations
    ),
    "missing a timer that fires slightly before its time": Planted(
        (Patch(HostedShard, "_on_wake", _wake_if_due),), _LIVENESS, 30, 4, run_members
    ),
    "forgetting the rebalance after a downgrade when the coordinator changes": Planted(
        (Patch(GroupShard, "on_loaded", _forget_rebalances),), _LIVENESS, 30, 161, run_migrations
    ),
    "loading a share partition without its batches": Planted(
        (Patch(LedSharePartition, "_on_read", _load_without_batches),), _SHARES, 20, 4, run_shares
    ),
    "sending markers of decisions that a deposed coordinator cannot commit": Planted(
        (Patch(TransactionShard, "_decide", _send_at_once),), _MARKERS, 20, 1, run_deposed_coordinators
    ),
}
