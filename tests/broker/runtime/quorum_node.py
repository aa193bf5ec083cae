"""A quorum of one on a file system that loses what was not synced: start it, write, pull the plug, start it again."""

from collections.abc import Sequence
from random import Random

from broker.runtime.quorum import (
    METADATA_LOG_NAME,
    CommittedBatch,
    LeaderAndEpoch,
    ListenerEndpoint,
    SingleVoterQuorum,
    Voter,
)
from storage.config import LogConfig
from storage.files import parent
from storage.log import Log
from tests.broker.metadata.images import uuid
from tests.support.clock import ManualClock
from tests.support.inline_io import InlineIo
from tests.support.manual_loop import ManualLoop
from tests.support.memory_files import MemoryFileSystem, checked

DIRECTORY = f"data/{METADATA_LOG_NAME}"


class RecordingListener:
    """Remembers what it was told, in order."""

    def __init__(self) -> None:
        self.batches: list[CommittedBatch] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.told: list[str] = []

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        self.batches += batches
        self.told += [f"{batch.base_offset}-{batch.last_offset}" for batch in batches]

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)
        self.told.append(f"leader {leader.leader_id} in {leader.epoch}")

    @property
    def frames(self) -> list[bytes]:
        return [bytes(frame) for batch in self.batches for frame in batch.frames]


class QuorumNode:
    """One life of a node. `crash` ends it; a new one on the same `fs` goes on."""

    def __init__(self, fs: MemoryFileSystem | None = None, *, node_id: int = 1, port: int = 9093) -> None:
        self.fs = fs or MemoryFileSystem()
        checked(self.fs).make_directory(parent(DIRECTORY))  # as a node does with its log directories
        checked(self.fs).sync_directory(parent(parent(DIRECTORY)))
        self.loop = ManualLoop()
        self.io = InlineIo(self.loop)
        self.clock = ManualClock()
        self.failures: list[BaseException] = []
        self.listener = RecordingListener()
        self.log = Log.open(
            checked(self.fs),
            DIRECTORY,
            LogConfig(),
            now_ms=self.clock.now_ms(),
            clean_shutdown=False,
            recovery_point=0,
            jitter=lambda _bound: 0,
        )
        self.quorum = SingleVoterQuorum(
            self.log,
            fs=checked(self.fs),
            directory=DIRECTORY,
            voter=Voter(node_id, uuid(9), (ListenerEndpoint("CONTROLLER", "127.0.0.1", port),)),
            clock=self.clock,
            io=self.io,
            on_fatal=self.failures.append,
        )
        self.quorum.add_listener(self.listener)

    def start(self) -> "QuorumNode":
        self.quorum.start()
        self.loop.run_soon()
        return self

    def append(self, *frames: bytes) -> int:
        """Append one batch; returns its last offset. Run the loop to have it committed."""
        return self.quorum.append(self.quorum.leader.epoch, frames).last_offset

    def settle(self) -> None:
        self.loop.run_soon()

    def crash(self, random: Random) -> "QuorumNode":
        """Lose power, and start again."""
        self.fs.crash(random)
        return QuorumNode(self.fs)
