"""A quorum of one voter on a file system that loses unsynced data in a crash."""

from asyncio import Future
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from broker.metadata.snapshot.codec import voters_checkpoint
from broker.quorum.core import QuorumCore
from broker.quorum.identity import Instant, ListenerEndpoint, SnapshotId, SocketAddress
from broker.quorum.membership.voters import VoterNode, VoterSet
from broker.quorum.messages import Request
from broker.quorum.settings import QuorumSettings
from broker.runtime.quorum.driver import QuorumDriver
from broker.runtime.quorum.metadata_log import RaftMetadataLog
from broker.runtime.quorum.quorum import METADATA_LOG_NAME, CommittedBatch, LeaderAndEpoch, RawSnapshotReader
from broker.runtime.quorum.replica_io import Done, ReplicaIo
from broker.runtime.quorum.state_file import QuorumStateFile
from protocol.records.quorum_control import ControlState
from storage.config import LogConfig
from storage.files import join, parent, write_file
from tests.broker.metadata.images import uuid
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.inline_io import InlineIo
from tests.support.fakes.manual_loop import ManualLoop
from tests.support.fakes.memory_files import MemoryFileSystem, checked
from tests.support.fakes.runtimes import make_runtime
from tests.support.quorum_values import replica_key

DIRECTORY = f"data/{METADATA_LOG_NAME}"
VOTERS_CHECKPOINT = "00000000000000000000-0000000000.checkpoint"
CLUSTER_ID = "test-cluster"


def listeners(port: int = 9093) -> tuple[ListenerEndpoint, ...]:
    return (ListenerEndpoint("CONTROLLER", "127.0.0.1", port),)


def format_voters(fs: MemoryFileSystem, *voters: VoterNode) -> None:
    """Write the files that formatting with initial controllers writes."""
    checked(fs).make_directory(DIRECTORY)
    content = voters_checkpoint(ControlState(1, VoterSet(voters).to_record()), 5)
    write_file(checked(fs), join(DIRECTORY, VOTERS_CHECKPOINT), content, sync=True)
    for directory in (DIRECTORY, parent(DIRECTORY)):
        checked(fs).sync_directory(directory)


class RecordingListener:
    """Records all callbacks in order."""

    def __init__(self) -> None:
        self.batches: list[CommittedBatch] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.events: list[str] = []

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        self.batches += batches
        self.events += [f"{batch.base_offset}-{batch.last_offset}" for batch in batches]

    def on_load_snapshot(self, snapshot_id: SnapshotId, reader: RawSnapshotReader) -> "Future[None] | None":
        self.batches.clear()
        self.events.append(f"snapshot {snapshot_id.end_offset}-{snapshot_id.epoch}")
        reader.close()
        return None

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)
        self.events.append(f"leader {leader.leader_id} in {leader.epoch}")

    @property
    def frames(self) -> list[bytes]:
        return [bytes(frame) for batch in self.batches for frame in batch.frames]


class Unanswered:
    """A network without responses."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Request]] = []
        self.answer: list[Done] = []

    def send(self, to_id: int, to: SocketAddress, request: Request, timeout_ms: int, done: Done) -> None:
        self.sent.append((to_id, request))
        self.answer.append(done)


class QuorumNode:
    """One process of a node. `crash` ends it and starts the next one on the same `fs`."""

    def __init__(
        self,
        fs: MemoryFileSystem | None = None,
        *,
        node_id: int = 1,
        port: int = 9093,
        config: LogConfig | None = None,
    ) -> None:
        self.fs = fs or MemoryFileSystem()
        checked(self.fs).make_directory(parent(DIRECTORY))  # as a node does with its log directories
        checked(self.fs).sync_directory(parent(parent(DIRECTORY)))
        if not checked(self.fs).exists(DIRECTORY):
            format_voters(self.fs, VoterNode(replica_key(1, uuid(9)), listeners(port)))
        self.loop = ManualLoop()
        self.io = InlineIo(self.loop)
        self.clock = ManualClock()
        self.failures: list[BaseException] = []
        self.listener = RecordingListener()
        self.network = Unanswered()
        self.log = RaftMetadataLog.open(checked(self.fs), DIRECTORY, config or LogConfig(), self.clock.now_ms())
        state_file = QuorumStateFile(checked(self.fs), DIRECTORY)
        settings = QuorumSettings(
            key=replica_key(node_id, uuid(9)), cluster_id=CLUSTER_ID, can_vote=True, listeners=listeners(port)
        )
        self.log.recovered = replace(self.log.recovered, election=state_file.read())
        now = Instant(self.clock.monotonic_ms(), self.clock.now_ms())
        self.quorum = QuorumDriver(
            QuorumCore(settings, self.log.recovered, Random(1), now),
            ReplicaIo(self.log, state_file, self.network),
            make_runtime(self.loop, clock=self.clock, io=self.io),
            on_fatal=self.failures.append,
        )
        self.quorum.add_listener(self.listener)

    def start(self) -> "QuorumNode":
        self.quorum.start()
        self.loop.run_soon()
        return self

    def append(self, *frames: bytes) -> int:
        """Append one batch and return its last offset. Running the loop commits the batch."""
        return self.quorum.append(self.quorum.leader.epoch, frames).last_offset

    def settle(self) -> None:
        """Run due callbacks after the linger time."""
        self.loop.run_soon()
        self.pass_time(30)

    def pass_time(self, ms: int) -> None:
        self.clock.advance_ms(ms)
        self.loop.advance(ms / 1000)

    def crash(self, random: Random) -> "QuorumNode":
        """Lose power and restart."""
        self.fs.crash(random)
        return QuorumNode(self.fs)
