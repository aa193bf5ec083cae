"""Snapshots of coordinators in the simulated cluster, and the check of loads that use them.

SnapshotLoadsEqualReplays: a coordinator's shard that is loaded from a snapshot and the log after it equals a shard that
has replayed the whole log to the same offset.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Protocol, TypeVar

from broker.coordination.shard import Shard
from broker.groups.classic import ClassicGroup
from broker.groups.consumer.loads import MemberLoads
from broker.groups.offsets import OffsetStore
from broker.groups.shard import GroupShard
from broker.metrics.coordinator_loads import CoordinatorSnapshotFigures
from broker.node.coordinator_snapshots import RULES
from broker.runtime.coordinators.shard_loader import ShardLoader
from broker.runtime.coordinators.shard_log import LoadedBatch, ShardLog
from broker.runtime.coordinators.shard_runtime import ShardRuntime
from broker.runtime.coordinators.snapshot_maker import SnapshotMaker, SnapshotSettings
from broker.runtime.coordinators.snapshot_store import CoordinatorSnapshot, SnapshotStore
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.runtime import Runtime
from broker.runtime.partitions.registry import Partitions
from broker.share_state.shard import ShareStateShard
from broker.transactions.shard import TransactionShard

T = TypeVar("T")
_INTERVAL_MS: Final = 200
_MIN_NEW_RECORDS: Final = 4
_BUFFER_BYTES: Final = 1_000


class SnapshotWitness(Protocol):
    """Checker of loads."""

    def on_snapshot_made(self) -> None: ...

    def on_snapshot_load(self, differences: Sequence[str]) -> None:
        """Check a load from a snapshot by its differences from a replay of the whole log."""
        ...


class Snapshots:
    """The snapshots of one broker process: made at short intervals, after a few records."""

    def __init__(self, runtime: Runtime, io: BlockingIo, partitions: Partitions, witness: SnapshotWitness) -> None:
        self.store = SnapshotStore(runtime.files, io, runtime.clock)
        settings = SnapshotSettings(_INTERVAL_MS, _MIN_NEW_RECORDS)
        self._maker = SnapshotMaker(runtime, partitions, self.store, RULES, settings)
        self._witness = witness
        self._maker.figures = _CountedSnapshots(witness)

    async def run(self) -> None:
        """Make snapshots that are due until the process ends."""
        await self._maker.run()

    def watch(self, shards: ShardRuntime[Any]) -> None:
        """Check every load of these shards that uses a snapshot."""
        shards._loader = _WitnessedLoader(shards._loader, shards._new_shard, self._witness)


class _CountedSnapshots(CoordinatorSnapshotFigures):
    """Figures of snapshots that also reach the checker."""

    def __init__(self, witness: SnapshotWitness) -> None:
        super().__init__()
        self._witness = witness

    def on_made(self, elapsed_ms: float, size: int) -> None:
        super().on_made(elapsed_ms, size)
        self._witness.on_snapshot_made()


class _WitnessedLoader(ShardLoader):
    """A loader that compares each load from a snapshot with a replay of the whole log."""

    def __init__(self, loader: ShardLoader, new_shard: Callable[[], Shard[Any, Any]], witness: SnapshotWitness) -> None:
        super().__init__(loader._clock, loader._buffer_bytes, loader._rule)
        self.figures = loader.figures
        self._new_shard = new_shard
        self._witness = witness

    async def load(self, shard: Shard[Any, Any], log: ShardLog, snapshot: CoordinatorSnapshot | None = None) -> int:
        end = await super().load(shard, log, snapshot)
        if snapshot is not None:
            self._witness.on_snapshot_load(self._differences(_FixedLog(log, end), snapshot))
        return end

    def _differences(self, log: "_FixedLog", snapshot: CoordinatorSnapshot) -> list[str]:
        """Load two more shards within this event, and return what differs between them."""
        whole, found = self._new_shard(), self._new_shard()
        loader = ShardLoader(self._clock, _BUFFER_BYTES, self._rule._replace(parks=False))
        _run(loader.load(whole, log, None))
        _run(super().load(found, log, snapshot))
        while found.parking is not None and not found.parking.is_empty:
            found.parking.replay_some()
        one, other = _state(found), _state(whole)
        names = sorted({*one, *other})
        return [
            f"{name}: {one.get(name)} instead of {other.get(name)}"
            for name in names
            if one.get(name) != other.get(name)
        ]


class _FixedLog:
    """A log up to an offset."""

    def __init__(self, log: ShardLog, end_offset: int) -> None:
        self._log = log
        self.start_offset = log.start_offset
        self.end_offset = end_offset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def read(self, offset: int, max_bytes: int) -> Sequence[LoadedBatch]:
        batches = await self._log.read(offset, max_bytes)
        return [batch for batch in batches if batch.next_offset <= self.end_offset]


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing but its next turn."""
    while True:
        try:
            waits_for = work.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result
        assert waits_for is None, waits_for


def _state(shard: Shard[Any, Any]) -> dict[str, object]:
    """Return what a shard has replayed, by name, as plain values."""
    if isinstance(shard, TransactionShard):
        return {f"id {name}": _plain(each) for part in shard.slices() for name, each in part}
    if isinstance(shard, ShareStateShard):
        return {str(key): _plain(entry) for key, entry in shard._entries.items()}
    assert isinstance(shard, GroupShard)
    offsets = shard.offsets
    found = {f"offsets of {name}": _plain(topics) for name, topics in offsets._committed.groups.items()}
    found |= {f"pending of {producer}": _plain(each.groups) for producer, each in offsets._pending.items()}
    directory = shard.all_groups
    for table in (directory.classic, directory.consumer, directory.streams, directory.share):
        found |= {f"group {group.group_id}": _plain(group) for group in table if not _is_trace(group, offsets)}
    return found


def _is_trace(group: object, offsets: OffsetStore) -> bool:
    """Whether a group has neither members nor offsets: only an aborted transaction has named it."""
    if not isinstance(group, ClassicGroup) or group.generation or not group.is_empty:
        return False
    return not offsets.has_offsets(group.group_id) and not offsets.has_open_transaction(group.group_id)


def _plain(thing: Any) -> object:
    """Return an object as plain values, without functions."""
    if thing is None or isinstance(thing, str | bytes | int | float | Enum):
        return thing
    if isinstance(thing, MemberLoads):
        return dict(thing._loads)  # without ranks, which depend on members that have left
    if isinstance(thing, Mapping):
        return {key: _plain(value) for key, value in thing.items()}
    if isinstance(thing, set | frozenset):
        return frozenset(thing)
    if isinstance(thing, Sequence):
        return [_plain(each) for each in thing]
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    names = [name for name in (*slots, *getattr(thing, "__dict__", ())) if hasattr(thing, name)]
    return {name: _plain(getattr(thing, name)) for name in names if not callable(getattr(thing, name))}
