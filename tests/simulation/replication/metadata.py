"""The metadata service: the real controller and its driver on an idealized quorum, and the feeds by which each broker
learns of committed records at its own time.

The quorum has its own simulation; here, appended records are committed after a while. Its leader may fail: uncommitted
records are then committed or lost, and the next leader starts without broker sessions.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from broker.metadata.controller.controller import Controller
from broker.metadata.controller.state import ControllerSettings
from broker.metadata.image.features import ELIGIBLE_LEADER_REPLICAS_VERSION, bootstrap_records
from broker.metadata.image.loader import LoaderState, MetadataLoader, RecordBatch
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import VersionedRecord, decode_record
from broker.net.peer import SocketAddress
from broker.runtime.controller.channel import allocate_producer_ids
from broker.runtime.controller.driver import Command, ControllerDriver
from broker.runtime.quorum.quorum import Appended, CommittedBatch, LeaderAndEpoch, NotLeader, QuorumListener
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch, Offset
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.messages.metadata_records import FeatureLevelRecord
from protocol.primitives import Uuid
from tests.broker.metadata.images import PlainSchema
from tests.simulation.replication.network import Call, Wires
from tests.simulation.replication.process import TaskProcess
from tests.simulation.replication.scenario import CLUSTER_ID, CONTROLLER_ID, Scenario
from tests.simulation.world import Handle, Process, SimulatedIo, World
from tests.support.fakes.runtimes import make_runtime
from tests.support.quorum_values import leader_and_epoch

CONTROLLER: Final = SocketAddress("controller", 1)
R = TypeVar("R")
_LOOK_AGAIN_MS: Final = 100.0


class Refusal(NamedTuple):
    """The response to a request that is refused as a whole."""

    code: ErrorCode


class IdealQuorum:
    """An idealized quorum. Implements Quorum. `log` has the committed records."""

    def __init__(self, process: Process, random: Random, *, commit_ms: float) -> None:
        self._process = process
        self._random = random
        self._commit_ms = commit_ms
        self._pending: list[CommittedBatch] = []
        self._commit: Handle | None = None
        self._listener: QuorumListener | None = None
        self._epoch = 0
        self._is_leader = False
        self._next_offset = 0
        self.high_watermark: int | None = 0
        self.log: list[RecordBatch] = []
        self.on_committed: Callable[[], None] = _nothing

    @property
    def node_id(self) -> int:
        return CONTROLLER_ID

    @property
    def leader(self) -> LeaderAndEpoch:
        return leader_and_epoch(CONTROLLER_ID if self._is_leader else None, self._epoch)

    @property
    def log_end_offset(self) -> int:
        return self._next_offset

    def add_listener(self, listener: QuorumListener) -> None:
        self._listener = listener

    def append(self, epoch: int, frames: Sequence[bytes]) -> Appended:
        if not self._is_leader or epoch != self._epoch:
            raise NotLeader
        base, now_ms = self._next_offset, self._process.now_ms()
        self._next_offset += len(frames)
        self._pending.append(CommittedBatch(base, self._next_offset - 1, LeaderEpoch(epoch), now_ms, list(frames)))
        if self._commit is None:
            self._commit = self._process.world.schedule(self._delay_ms(), self._commit_all, process=self._process)
        return Appended(Offset(base), Offset(self._next_offset - 1), now_ms)

    def resign(self, epoch: int) -> None:
        raise AssertionError("the controller failed")

    def elect(self) -> None:
        """Make this node leader in a new epoch."""
        self._epoch += 1
        self._is_leader = True
        self._tell(self.leader)

    def depose(self) -> None:
        """Depose the leader. Some of its uncommitted records are committed, the rest are lost."""
        self._epoch += 1
        self._is_leader = False
        survivors = self._pending[: self._random.randint(0, len(self._pending))]
        self._pending = []
        self._tell(self.leader)
        self._take(survivors)
        self._next_offset = survivors[-1].last_offset + 1 if survivors else (self.high_watermark or 0)

    def _delay_ms(self) -> float:
        return self._random.expovariate(1.0 / self._commit_ms)

    def _commit_all(self) -> None:
        self._commit = None
        batches, self._pending = self._pending, []
        self._take(batches)

    def _take(self, batches: list[CommittedBatch]) -> None:
        if not batches:
            return
        assert self._listener is not None
        self.high_watermark = batches[-1].last_offset + 1
        self.log += [_decoded(batch) for batch in batches]
        self._listener.on_commit(batches)
        self.on_committed()

    def _tell(self, leader: LeaderAndEpoch) -> None:
        assert self._listener is not None
        self._listener.on_leader_change(leader)


class MetadataService:
    """The server of the brokers' requests to the controller. Never fails."""

    def __init__(self, world: World, seed: int, scenario: Scenario) -> None:
        self.process = TaskProcess(world, CONTROLLER_ID, wall_offset_ms=1_700_000_000_000)
        random = Random(f"metadata {seed}")
        self.quorum = IdealQuorum(self.process, random, commit_ms=scenario.metadata_commit_ms)
        self.controller = Controller(
            ControllerSettings(
                CLUSTER_ID,
                node_id=CONTROLLER_ID,
                session_timeout_ms=scenario.session_timeout_ms,
                max_idle_interval_ms=0,
                leader_imbalance_check_interval_ms=int(3_000 * scenario.pace),
                unclean_election_interval_ms=int(1_000 * scenario.pace),
            ),
            PlainSchema(),
            random=random,
            new_id=lambda: Uuid(random.randbytes(16)),
        )
        self.driver = ControllerDriver(
            self.controller,
            self.quorum,
            make_runtime(
                self.process, clock=self.process, io=SimulatedIo(self.process, random, inline_share=1.0, delay_ms=1.0)
            ),
            bootstrap=_bootstrap(elr=scenario.elr),
            local_broker=None,
        )
        self.quorum.add_listener(self.driver)
        self._loader = MetadataLoader()
        self._states = [self._loader.state]
        self.feeds: list[Feed] = []
        self.heard_ms: dict[int, float] = {}
        """The time of the last registration or heartbeat of each broker."""
        self.heeded_ms: dict[int, float] = {}
        """The time of the last heartbeat of each broker that was not refused and did not ask to be fenced."""
        self.quorum.on_committed = self._on_committed
        self.on_altered: Callable[[AlterPartitionRequest, AlterPartitionResponse], None] = _ignore_answer

    @property
    def image(self) -> MetadataImage:
        """Return the latest committed image."""
        return self.driver.image

    @property
    def decided(self) -> MetadataImage:
        """Return the image with decided, uncommitted records."""
        return self.controller.image

    def state_at(self, count: int) -> LoaderState:
        """Return the image after this number of batches."""
        while len(self._states) <= count:
            self._loader.load([self.quorum.log[len(self._states) - 1]])
            self._states.append(self._loader.state)
        return self._states[count]

    def serve(self, call: Call) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = self.process.create_future()
        arrived_ms = self.process.world.now_ms
        if isinstance(call.message, BrokerHeartbeatRequest | BrokerRegistrationRequest):
            self.heard_ms[call.message.broker_id] = arrived_ms
            if not isinstance(call.message, BrokerHeartbeatRequest) or call.message.want_fence:
                self.heeded_ms.pop(call.message.broker_id, None)
        try:
            decided = self.driver.submit(_command(call.message))
        except KafkaError as error:
            answer.set_result(Refusal(error.code))
            return answer

        def settle(done: "asyncio.Future[Any]") -> None:
            error = done.exception()
            if error is None and isinstance(call.message, AlterPartitionRequest):
                self.on_altered(call.message, done.result())
            if error is None and isinstance(call.message, BrokerHeartbeatRequest):
                self.heeded_ms[call.message.broker_id] = arrived_ms
            if not answer.done():
                answer.set_result(Refusal(error.code) if isinstance(error, KafkaError) else done.result())

        decided.add_done_callback(settle)
        return answer

    def command(self, command: Command[R], done: Callable[[R | Refusal], None]) -> None:
        """Run an operator's request, in an event of this process."""

        def run() -> None:
            try:
                decided = self.driver.submit(command)
            except KafkaError as error:
                done(Refusal(error.code))
                return
            decided.add_done_callback(
                lambda future: done(_refused(future.exception()) if future.exception() else future.result())
            )

        self.process.world.run(self.process, run)

    def _on_committed(self) -> None:
        for feed in self.feeds:
            feed.wake()


class MetadataReader(Protocol):
    """A running broker as a reader of metadata."""

    @property
    def process(self) -> Process: ...

    def on_batches(self, batches: Sequence[RecordBatch]) -> None: ...


class Feed:
    """Delivers the committed records to one broker: in order, delayed, one or several batches at a time."""

    def __init__(self, service: MetadataService, wires: Wires, node_id: int, random: Random, delay_ms: float) -> None:
        self._service = service
        self._wires = wires
        self._node_id = node_id
        self._random = random
        self._delay_ms = delay_ms
        self._reader: MetadataReader | None = None
        self._is_due = False
        self.held_until_ms = 0.0
        """Time before which nothing is delivered."""
        self.count = 0
        """Number of delivered batches."""

    def start(self, reader: MetadataReader) -> LoaderState:
        """Start a broker with the metadata that it had, or with slightly more."""
        committed = len(self._service.quorum.log)
        self.count = self._random.choice((self.count, self._random.randint(self.count, committed), committed))
        self._reader = reader
        self.wake()
        return self._service.state_at(self.count)

    def stop(self) -> None:
        self._reader = None

    def wake(self) -> None:
        if not self._is_due and self._reader is not None and self.count < len(self._service.quorum.log):
            self._is_due = True
            self._wires.world.schedule(self._random.expovariate(1.0 / self._delay_ms), self._bring)

    def bring_one(self) -> None:
        """Deliver the next batch, although the feed is held."""
        reader = self._reader
        assert reader is not None, "a stopped node receives no metadata"
        self.count += 1
        self._wires.world.run(reader.process, reader.on_batches, self._service.quorum.log[self.count - 1 : self.count])

    def hurry(self) -> None:
        """Deliver without delays from now on."""
        self.held_until_ms, self._delay_ms = 0.0, 1.0

    def _bring(self) -> None:
        self._is_due = False
        reader, world, log = self._reader, self._wires.world, self._service.quorum.log
        if reader is None or not reader.process.is_alive or self.count >= len(log):
            return
        waits_ms = max(reader.process.stalled_until_ms, self.held_until_ms) - world.now_ms
        if self._wires.is_blocked(CONTROLLER_ID, self._node_id):
            waits_ms = max(waits_ms, _LOOK_AGAIN_MS * self._wires.pace)
        if waits_ms > 0.0:
            self._is_due = True
            world.schedule(min(waits_ms, _LOOK_AGAIN_MS * self._wires.pace), self._bring)
            return
        first = self.count
        self.count = len(log) if self._random.random() < 0.5 else self.count + 1
        world.run(reader.process, reader.on_batches, log[first : self.count])
        self.wake()


def _command(request: object) -> Command[Any]:
    match request:
        case BrokerHeartbeatRequest():
            return lambda controller, now: controller.heartbeat(request, now_ms=now)
        case BrokerRegistrationRequest():
            return lambda controller, now: controller.register_broker(request, now_ms=now)
        case AlterPartitionRequest():
            return lambda controller, _now: controller.alter_partitions(request)
        case AssignReplicasToDirsRequest():
            return lambda controller, _now: controller.assign_directories(request)
        case AllocateProducerIdsRequest():
            return allocate_producer_ids(request)
        case _:
            raise AssertionError(f"unexpected request to the controller: {request}")


def _refused(error: BaseException | None) -> Refusal:
    assert isinstance(error, KafkaError), error
    return Refusal(error.code)


def _bootstrap(*, elr: bool) -> list[VersionedRecord]:
    return [
        record
        for record in bootstrap_records()
        if elr
        or not isinstance(record.message, FeatureLevelRecord)
        or record.message.name != ELIGIBLE_LEADER_REPLICAS_VERSION
    ]


def _decoded(batch: CommittedBatch) -> RecordBatch:
    records = [decode_record(frame) for frame in batch.frames]
    return RecordBatch(batch.base_offset, batch.last_offset, LeaderEpoch(batch.epoch), batch.timestamp_ms, records)


def _ignore_answer(request: AlterPartitionRequest, response: AlterPartitionResponse) -> None:
    """Ignore an answer."""


def _nothing() -> None:
    """Ignore the result."""
