"""Runs coordinator shards over the partitions of an internal topic that this node leads.

| state | reached by | response to requests |
|---|---|---|
| (no shard) | not led here | NOT_COORDINATOR |
| LOADING | election; another election in FAILED, or a discarded shard | COORDINATOR_LOAD_IN_PROGRESS |
| ACTIVE | the log is replayed to its end | served |
| FAILED | the log could not be read or replayed | NOT_COORDINATOR |
| CLOSED | resigned, replica removed, topic deleted | NOT_COORDINATOR |

Elections carry the partition's leader epoch, and only a newer epoch counts, so repeated or late metadata changes
nothing. A led partition without a log yet (it is being created) waits in LOADING. Partitions are loaded one at a time;
an empty one is loaded at once.
"""

import asyncio
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from broker.coordination.shard import Parking, Shard
from broker.logs import EventLog
from broker.runtime.coordinators.hosted_shard import Answer, Command, HostedShard, WriteLimits
from broker.runtime.coordinators.shard_loader import ShardLoader
from broker.runtime.coordinators.shard_log import ProducerTransaction, ShardLog
from broker.runtime.loop.runtime import Runtime
from broker.runtime.loop.sliced_work import SlicedSteps, SlicedWork
from broker.runtime.partitions.transaction_marker import WritableMarker
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch

S = TypeVar("S", bound=Shard[Any, Any])
R = TypeVar("R")

_log = EventLog(__name__)


class ShardState(Enum):
    """The state of a partition's shard."""

    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()
    CLOSED = auto()


class _Slot(Generic[S]):
    """A partition that this node leads or led. `hosted` is set only in ACTIVE; `awaits_log` applies to LOADING."""

    __slots__ = ("awaits_log", "hosted", "leader_epoch", "partition", "state")

    def __init__(self, partition: int, leader_epoch: LeaderEpoch) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = ShardState.LOADING
        self.awaits_log = False
        self.hosted: HostedShard[S] | None = None


class ShardRuntime(Generic[S]):
    """Loads and unloads shards with leadership, and runs commands on them.

    `open_log` returns the log of a led partition, or raises KafkaError: NOT_LEADER_OR_FOLLOWER when there is none yet.
    The owner runs `run_loader` as a task.
    """

    def __init__(
        self,
        runtime: Runtime,
        topic: str,
        new_shard: Callable[[], S],
        open_log: Callable[[int], ShardLog],
        limits: WriteLimits,
        loader: ShardLoader,
    ) -> None:
        self.loads = loader.figures
        self._topic = topic
        self._new_shard = new_shard
        self._open_log = open_log
        self._limits = limits
        self._loader = loader
        self._runtime = runtime
        self._slots: dict[int, _Slot[S]] = {}
        self._to_load: asyncio.Queue[_Slot[S]] = asyncio.Queue()
        self._is_running = True

    # Leadership.

    def elect(self, partition: int, leader_epoch: LeaderEpoch) -> None:
        """Load the partition, which this node leads from `leader_epoch` on."""
        slot = self._slots.get(partition)
        if slot is None:
            slot = self._slots[partition] = _Slot(partition, leader_epoch)
            self._start_loading(slot)
        elif leader_epoch > slot.leader_epoch:
            slot.leader_epoch = leader_epoch
            if slot.hosted is not None:
                slot.hosted.leader_epoch = leader_epoch
            elif slot.state is ShardState.FAILED:
                self._start_loading(slot)

    def log_ready(self, partition: int) -> None:
        """Load the partition if an election waits for its log, which is now in service."""
        slot = self._slots.get(partition)
        if slot is not None and slot.awaits_log:
            self._start_loading(slot)

    def resign(self, partition: int, leader_epoch: LeaderEpoch | None = None) -> None:
        """Unload the partition: another node leads it from `leader_epoch` on; None when this node no longer has a
        replica.
        """
        slot = self._slots.get(partition)
        if slot is None or (leader_epoch is not None and leader_epoch <= slot.leader_epoch):
            return
        del self._slots[partition]
        self._close(slot, ShardState.CLOSED)
        _log.debug("Unloaded a coordinator", topic=self._topic, partition=partition)

    def close(self) -> None:
        """Unload every partition; requests get COORDINATOR_NOT_AVAILABLE from now on."""
        self._is_running = False
        for partition in list(self._slots):
            self.resign(partition)

    def states(self) -> dict[int, ShardState]:
        """Return the state of each partition led here."""
        return {partition: slot.state for partition, slot in self._slots.items()}

    def shards(self) -> Iterator[S]:
        """Iterate over the shards in service."""
        return (slot.hosted.shard for slot in self._slots.values() if slot.hosted is not None)

    def shard(self, partition: int) -> S | None:
        """Return the partition's shard if it is in service."""
        slot = self._slots.get(partition)
        return None if slot is None or slot.hosted is None else slot.hosted.shard

    # Commands.

    def execute(self, partition: int, command: Command[S, R], *, soft: bool = False) -> Answer[R]:
        """Run a command on the partition's shard. Return the response, or a future of it. Raise KafkaError."""
        return self._hosted(partition).execute(command, soft=soft)

    def post(self, partition: int, command: Command[S, R], *, soft: bool = False) -> None:
        """Run a command that answers through replies. Raise KafkaError when it cannot run."""
        self._hosted(partition).post(command, soft=soft)

    def check_in_service(self, partition: int) -> None:
        """Raise KafkaError unless the partition's shard is in service."""
        self._hosted(partition)

    def execute_in_transaction(
        self, partition: int, command: Command[S, R], transaction: ProducerTransaction
    ) -> Answer[R]:
        """Run a command whose records take effect with the marker of a producer's transaction. Raise KafkaError."""
        return self._hosted(partition).execute_in_transaction(command, transaction)

    def end_transaction(self, partition: int, marker: WritableMarker) -> Answer[None]:
        """Write a transaction marker to the partition and apply it to the shard. Raise KafkaError."""
        return self._hosted(partition).end_transaction(marker)

    def partitions_in_service(self) -> list[int]:
        """Return all partitions in service. Raise KafkaError(COORDINATOR_LOAD_IN_PROGRESS) while one is loading."""
        if not self._is_running:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if any(slot.state is ShardState.LOADING for slot in self._slots.values()):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return [partition for partition, slot in self._slots.items() if slot.hosted is not None]

    def _hosted(self, partition: int) -> HostedShard[S]:
        slot = self._slots.get(partition)
        if slot is not None and slot.hosted is not None:
            return slot.hosted
        if not self._is_running:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        is_loading = slot is not None and slot.state is ShardState.LOADING
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR)

    # Loading.

    async def run_loader(self) -> None:
        """Load elected partitions, one after another, until cancelled."""
        while True:
            await self._load(await self._to_load.get())

    def _start_loading(self, slot: _Slot[S]) -> None:
        slot.state = ShardState.LOADING
        slot.awaits_log = False
        try:
            log = self._open_log(slot.partition)
            is_empty = log.start_offset == log.end_offset
        except KafkaError as error:
            slot.awaits_log = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            if not slot.awaits_log:
                self._fail(slot, error)
            return
        if is_empty:
            self._activate(slot, self._new_shard(), log, log.end_offset)
        else:
            self._to_load.put_nowait(slot)

    async def _load(self, slot: _Slot[S]) -> None:
        if slot.state is not ShardState.LOADING:
            return
        started_ms = self._runtime.clock.monotonic_ms()
        shard = self._new_shard()
        try:
            log = self._open_log(slot.partition)
            snapshot = await log.newest_snapshot()
            next_offset = await self._loader.load(shard, log, snapshot)
        except Exception as error:  # noqa: BLE001  any malformed log fails its partition, not the node
            self._fail(slot, error)
            return
        if slot.state is ShardState.LOADING:  # else resigned meanwhile
            self._activate(slot, shard, log, next_offset)
            took_ms = round(self._runtime.clock.monotonic_ms() - started_ms)
            _log.info(
                "Loaded a coordinator",
                topic=self._topic,
                partition=slot.partition,
                ms=took_ms,
                snapshot=0 if snapshot is None else snapshot.id.end_offset,
            )
            self._replay_parked(slot)

    def _activate(self, slot: _Slot[S], shard: S, log: ShardLog, next_offset: int) -> None:
        shard.on_loaded()
        slot.hosted = HostedShard(
            self._runtime,
            shard,
            log,
            slot.leader_epoch,
            next_offset,
            self._limits,
            lambda: self._on_broken(slot),
        )
        slot.state = ShardState.ACTIVE

    def _replay_parked(self, slot: _Slot[S]) -> None:
        """Replay parked records in the background, for as long as the shard is in service."""
        hosted = slot.hosted
        if hosted is not None and hosted.shard.parking is not None:
            steps = _replay_steps(hosted.shard.parking, lambda: slot.hosted is hosted)
            work = SlicedWork(steps, self._runtime.loop, self._runtime.clock, pauses=True)
            work.done.add_done_callback(lambda done: self._on_replayed(slot, hosted, done))

    def _on_replayed(self, slot: _Slot[S], hosted: HostedShard[S], done: asyncio.Future[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None and slot.hosted is hosted:
            _log.error("Replaying parked records failed", error, topic=self._topic, partition=slot.partition)
            self._on_broken(slot)

    def _on_broken(self, slot: _Slot[S]) -> None:
        """Discard a shard that does not match its log, and load it again."""
        if slot.state is ShardState.ACTIVE:
            self._close(slot, ShardState.FAILED)
            self._runtime.loop.call_soon(lambda: self._reload(slot))

    def _reload(self, slot: _Slot[S]) -> None:
        if slot.state is ShardState.FAILED:
            self._start_loading(slot)

    def _fail(self, slot: _Slot[S], error: Exception) -> None:
        if slot.state is ShardState.LOADING:
            slot.state = ShardState.FAILED
            _log.error("Loading a coordinator failed", error, topic=self._topic, partition=slot.partition)

    def _close(self, slot: _Slot[S], state: ShardState) -> None:
        slot.state = state
        hosted, slot.hosted = slot.hosted, None
        if hosted is not None:
            hosted.close()


def _replay_steps(parking: Parking, is_in_service: Callable[[], bool]) -> SlicedSteps[None]:
    """Replay one bucket in each step."""
    while is_in_service() and not parking.is_empty:
        parking.replay_some()
        yield None
