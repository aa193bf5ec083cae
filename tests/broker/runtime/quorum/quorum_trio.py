"""Three replicas of the metadata log on one manual loop, with a network that tests can partition."""

from asyncio import Future
from dataclasses import replace
from random import Random

from broker.metadata.snapshot.codec import snapshot_batches
from broker.quorum.core import QuorumCore
from broker.quorum.identity import Instant, KRaftVersions, ListenerEndpoint, SocketAddress
from broker.quorum.membership.voters import VoterNode
from broker.quorum.messages import Request, Response, SendFailure
from broker.quorum.settings import QuorumSettings
from broker.runtime.quorum.driver import QuorumDriver
from broker.runtime.quorum.metadata_log import RaftMetadataLog
from broker.runtime.quorum.replica_io import Done, ReplicaIo
from broker.runtime.quorum.state_file import QuorumStateFile
from protocol.errors import ErrorCode
from protocol.records.quorum_control import ControlState
from storage.config import LogConfig
from storage.files import parent
from tests.broker.metadata.images import uuid
from tests.broker.runtime.quorum.quorum_node import CLUSTER_ID, DIRECTORY, RecordingListener, format_voters
from tests.support.fakes.inline_io import InlineIo
from tests.support.fakes.manual_loop import ManualLoop
from tests.support.fakes.memory_files import MemoryFileSystem, checked
from tests.support.fakes.runtimes import make_runtime
from tests.support.quorum_values import replica_key


class LoopClock:
    """A clock that follows the loop's time."""

    def __init__(self, loop: ManualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic_ms())

    def monotonic_ms(self) -> float:
        return self._loop.time() * 1000


def voter(node_id: int) -> VoterNode:
    return VoterNode(
        replica_key(node_id, uuid(node_id)), (ListenerEndpoint("CONTROLLER", f"n{node_id}", 9093),), KRaftVersions()
    )


class TrioNode:
    """One process of a replica."""

    def __init__(self, trio: "Trio", node_id: int, fs: MemoryFileSystem) -> None:
        self.id = node_id
        self.fs = fs
        self.io = InlineIo(trio.loop)
        self.snapshot_io = InlineIo(trio.loop)
        self.failures: list[BaseException] = []
        self.listener = RecordingListener()
        self.sent: list[tuple[int, Request]] = []
        self._trio = trio
        self.log = RaftMetadataLog.open(checked(fs), DIRECTORY, LogConfig(), trio.clock.now_ms())
        state_file = QuorumStateFile(checked(fs), DIRECTORY)
        own = voter(node_id)
        settings = QuorumSettings(
            key=own.key,
            cluster_id=CLUSTER_ID,
            can_vote=True,
            listeners=own.listeners,
            retention_bytes=trio.retention_bytes,
        )
        now = Instant(trio.clock.monotonic_ms(), trio.clock.now_ms())
        recovered = replace(self.log.recovered, election=state_file.read())
        self.driver = QuorumDriver(
            QuorumCore(settings, recovered, Random(node_id), now),
            ReplicaIo(self.log, state_file, self, snapshot_io=self.snapshot_io),
            make_runtime(trio.loop, clock=trio.clock, io=self.io),
            on_fatal=self.failures.append,
        )
        self.driver.add_listener(self.listener)

    def send(self, to_id: int, to: SocketAddress, request: Request, timeout_ms: int, done: Done) -> None:
        self.sent.append((to_id, request))
        self._trio.carry(self, to, request, timeout_ms, done)

    def append(self, *frames: bytes) -> int:
        return self.driver.append(self.driver.leader.epoch, frames).last_offset

    def generate_snapshot(self) -> str:
        """Generate a snapshot without records at the high watermark, and return its id as text."""
        assert self.driver.high_watermark is not None
        id = self.driver.can_snapshot_at(self.driver.high_watermark)
        assert id is not None
        writer = self.driver.begin_snapshot(id)
        control = ControlState(1, self.driver.facts.voters.to_record())
        for batch in snapshot_batches((), epoch=id.epoch, last_timestamp_ms=5, batch_timestamp_ms=5, control=control):
            writer.append(batch)
        self.driver.on_snapshot_generated(writer.commit(5))
        return f"{id.end_offset}-{id.epoch}"


class Trio:
    """Nodes 1, 2 and 3, all voters. `nodes` are the running ones; `cut` ids are partitioned."""

    def __init__(self, *, retention_bytes: int = -1) -> None:
        self.retention_bytes = retention_bytes
        self.loop = ManualLoop()
        self.clock = LoopClock(self.loop)
        self.nodes: dict[int, TrioNode] = {}
        self.cut: set[int] = set()
        self._disks: dict[int, MemoryFileSystem] = {}

    def start(self, *ids: int) -> None:
        for node_id in ids or (1, 2, 3):
            node = self.nodes[node_id] = TrioNode(self, node_id, self._disk(node_id))
            node.driver.start()
        self.loop.run_soon()

    def kill(self, node_id: int) -> TrioNode:
        """Stop a process; synced files remain."""
        node = self.nodes.pop(node_id)
        node.driver.close()
        return node

    def run(self, ms: float) -> None:
        self.loop.advance(ms / 1000)
        assert not self.loop.failures

    def elect(self) -> TrioNode:
        """Run until all nodes know a leader, and return it."""
        for _ in range(200):
            self.run(50)
            leader = self.alive[0].driver.leader
            if leader.leader_id in {node.id for node in self.alive} and all(
                node.driver.leader == leader and node.listener.leaders[-1:] == [leader] for node in self.alive
            ):
                return self.nodes[leader.leader_id]
        raise AssertionError("no node is the leader")

    @property
    def alive(self) -> list[TrioNode]:
        return [node for node_id, node in sorted(self.nodes.items()) if node_id not in self.cut]

    def others(self, leader: TrioNode) -> list[TrioNode]:
        return [node for node in self.alive if node is not leader]

    def carry(self, sender: TrioNode, to: SocketAddress, request: Request, timeout_ms: int, done: Done) -> None:
        """Deliver with a latency of 1 ms each way; a lost message fails after its timeout."""
        target = self.nodes.get(int(to.host.removeprefix("n")))
        lost = SendFailure(ErrorCode.BROKER_NOT_AVAILABLE)

        def fail() -> None:
            self.loop.call_later(timeout_ms / 1000, done, lost)

        def arrive() -> None:
            if target is None or self.cut & {sender.id, target.id}:
                fail()
            else:
                target.driver.handle(request).add_done_callback(leave)

        def leave(answered: "Future[Response]") -> None:
            if target is None or self.cut & {sender.id, target.id}:
                fail()
            else:
                self.loop.call_later(0.001, done, lost if answered.exception() else answered.result())

        self.loop.call_later(0.001, arrive)

    def _disk(self, node_id: int) -> MemoryFileSystem:
        if node_id not in self._disks:
            fs = self._disks[node_id] = MemoryFileSystem()
            checked(fs).make_directory(parent(DIRECTORY))
            checked(fs).sync_directory(parent(parent(DIRECTORY)))
            format_voters(fs, voter(1), voter(2), voter(3))
        return self._disks[node_id]
