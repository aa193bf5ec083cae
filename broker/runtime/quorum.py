"""The quorum as its users see it, and the quorum of one.

`Quorum` is the seam: the controller's driver appends at an epoch and hears of commits and leaders through a listener,
whether one node agrees with itself or several do. `SingleVoterQuorum` keeps the same files and the same order of
durability as the larger one: the epoch is on disk before its first record, a record is fsynced before it counts, and
leadership is announced only once a record of the own epoch is committed and everything before it was handed over.
"""

from asyncio import Future
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from broker.clock import Clock
from broker.metadata.snapshot_codec import data_batch, read_snapshot
from broker.quorum.appends import Appended, BatchTooLarge, NotLeader
from broker.quorum.identity import LeaderAndEpoch, ListenerEndpoint, SnapshotId
from broker.quorum.ready import ElectionState
from broker.runtime.io_thread import BlockingIo
from broker.runtime.quorum_state import QuorumStateFile
from protocol.compiler import encode_bytes
from protocol.messages.common_records import (
    Endpoint,
    KRaftVersionFeature,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    VotersRecord,
    VotersRecordVoter,
)
from protocol.primitives import Buffer, Uuid
from protocol.records.batch import BatchHeader, iter_headers
from protocol.records.control import ControlType, control_batch
from protocol.records.quorum_control import ControlState, control_records, read_control_state
from protocol.records.reader import iter_records
from storage.errors import StorageError
from storage.files import FileSystem, join, read_file

__all__ = [
    "Appended",
    "BatchTooLarge",
    "CommitListener",
    "CommittedBatch",
    "ForeignQuorum",
    "LeaderAndEpoch",
    "ListenerEndpoint",
    "NotLeader",
    "Quorum",
    "QuorumListener",
    "SingleVoterQuorum",
    "SnapshotReader",
    "Voter",
]

METADATA_LOG_NAME: Final = "__cluster_metadata-0"
VOTERS_CHECKPOINT: Final = "00000000000000000000-0000000000.checkpoint"
KRAFT_VERSION: Final = 1

# No reader takes a larger batch, and no single change of metadata comes near it.
MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
_READ_BYTES: Final = 8 * 1024 * 1024


class ForeignQuorum(Exception):
    """The log belongs to a quorum of other voters; this node alone may not go on with it."""


class CommittedBatch(NamedTuple):
    """A batch that cannot vanish any more. `frames` are framed metadata records; a control batch has none."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    frames: Sequence[Buffer]


class SnapshotReader(Protocol):
    """A snapshot as a listener loads it, in pieces; whoever was given it closes it."""

    @property
    def size(self) -> int:
        """Bytes of the whole snapshot."""
        ...

    def next_chunk(self) -> bytes:
        """The next whole batches, about a megabyte; empty at the end. Blocks. Raises DamagedSnapshot, OSError."""
        ...

    def close(self) -> None: ...


class CommitListener(Protocol):
    """What a user of the quorum is told, on the event loop and in the order of offsets.

    An exception out of any of these ends the node. None of them may hold the loop for more than a few milliseconds;
    what is committed comes in pieces that are small enough, as long as its writer's batches are.
    """

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None: ...

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """To the leader itself only after its own epoch's first commit; every batch before that was handed over."""
        ...


class QuorumListener(CommitListener, Protocol):
    """A user that can begin at a snapshot, as it must where the log does not reach back to its beginning."""

    def on_load_snapshot(self, snapshot_id: SnapshotId, reader: SnapshotReader) -> "Future[None] | None":
        """Forget everything, and load this instead. Nothing else is told before the future is done; None: it is."""
        ...


class Quorum(Protocol):
    """A replicated metadata log with one leader per epoch (KIP-595)."""

    @property
    def node_id(self) -> int: ...

    @property
    def leader(self) -> LeaderAndEpoch: ...

    @property
    def high_watermark(self) -> int | None:
        """The end of what is committed; None until a leader has committed something in its epoch."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset that the next append gets."""
        ...

    def append(self, epoch: int, frames: Sequence[bytes]) -> Appended:
        """Append records as one batch, which commits or vanishes as a whole.

        Returns before anything is durable, and never tells of the commit before it has returned. Raises NotLeader,
        BatchTooLarge, or storage's LogDirFailure.
        """
        ...

    def add_listener(self, listener: QuorumListener) -> None:
        """Hear of everything from the log's start on, then of what comes."""
        ...

    def resign(self, epoch: int) -> None:
        """Give up leadership of an epoch, because this node's state machine cannot go on. No effect if it is over."""
        ...


class MetadataLog(Protocol):
    """What the quorum needs of a log."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def append_prepared(self, batches: Buffer, leader_epoch: int, *, now_ms: int) -> object: ...

    def read(self, offset: int, max_bytes: int, upper: int, min_one: bool = ...) -> "LogData": ...

    def advance_high_watermark(self, offset: int) -> object: ...

    def flush(self) -> object: ...


class LogData(Protocol):
    """Whole batches as read."""

    @property
    def data(self) -> Buffer: ...


@dataclass(frozen=True, slots=True)
class Voter:
    """This node as a member of the quorum; the directory is that of the metadata log."""

    id: int
    directory_id: Uuid
    endpoints: tuple[ListenerEndpoint, ...]

    def to_voters_record(self) -> VotersRecord:
        """The voter set that consists of this node."""
        return VotersRecord(
            voters=[
                VotersRecordVoter(
                    voter_id=self.id,
                    voter_directory_id=self.directory_id,
                    endpoints=[Endpoint(name=each.name, host=each.host, port=each.port) for each in self.endpoints],
                    kraft_version_feature=KRaftVersionFeature(
                        min_supported_version=0, max_supported_version=KRAFT_VERSION
                    ),
                )
            ]
        )


class SingleVoterQuorum:
    """A quorum whose only voter is this node: it elects itself, and commits whatever its disk holds.

    Construction reads `quorum-state` and the log's control records and blocks; `start` begins the first epoch. Use it
    on the event loop alone. `on_fatal` is told of an IO error, or of a listener that failed: the node cannot go on.
    """

    def __init__(
        self,
        log: MetadataLog,
        *,
        fs: FileSystem,
        directory: str,
        voter: Voter,
        clock: Clock,
        io: BlockingIo,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._fs = fs
        self._directory = directory
        self._voter = voter
        self._clock = clock
        self._io = io
        self._on_fatal = on_fatal
        self._listeners: list[CommitListener] = []
        self._unflushed: deque[CommittedBatch] = deque()
        self._flushing = False
        self._closed = False
        self._high_watermark: int | None = None
        self._control, last_epoch = self._scan()
        self._state_file = QuorumStateFile(fs, directory)
        state = self._state_file.read() or ElectionState()
        self._leader = LeaderAndEpoch(None, max(state.epoch, last_epoch))
        self._elected_at = -1  # offset of the current epoch's first record; -1 while nobody leads
        self._announced = True

    # Reading

    @property
    def node_id(self) -> int:
        return self._voter.id

    @property
    def leader(self) -> LeaderAndEpoch:
        return self._leader

    @property
    def high_watermark(self) -> int | None:
        return self._high_watermark

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def control_state(self) -> ControlState | None:
        """kraft.version and voters as the log has them, committed or not."""
        return self._control

    def add_listener(self, listener: CommitListener) -> None:
        if self._high_watermark is not None:
            self._replay(listener, self._high_watermark)
            if self._announced:
                listener.on_leader_change(self._leader)
        self._listeners.append(listener)

    # Leading

    def start(self) -> None:
        """Stand for election; listeners hear of it once it is won and everything in the log was handed over."""
        self._stand()

    def append(self, epoch: int, frames: Sequence[bytes]) -> Appended:
        if self._leader != LeaderAndEpoch(self._voter.id, epoch):
            raise NotLeader(f"node {self._voter.id} does not lead in epoch {epoch}")
        base_offset, now_ms = self._log.log_end_offset, self._clock.now_ms()
        batch = data_batch(frames, base_offset=base_offset, epoch=epoch, timestamp_ms=now_ms)
        if len(batch) > MAX_BATCH_BYTES:
            raise BatchTooLarge(f"{len(frames)} records need {len(batch)} bytes")
        last_offset = base_offset + len(frames) - 1
        self._write(batch, CommittedBatch(base_offset, last_offset, epoch, now_ms, frames))
        return Appended(base_offset, last_offset, now_ms)

    def resign(self, epoch: int) -> None:
        """A lone voter stands again at once, in a new epoch. What it had written stays and will be committed."""
        if self._leader == LeaderAndEpoch(self._voter.id, epoch):
            self._leader = LeaderAndEpoch(None, epoch)
            self._announced = True
            for listener in list(self._listeners):
                listener.on_leader_change(self._leader)
            self._stand()

    def close(self) -> None:
        """Tell listeners nothing any more. The log stays its owner's to close."""
        self._closed = True
        self._leader = LeaderAndEpoch(None, self._leader.epoch)

    def _stand(self) -> None:
        """The vote for oneself and its success are one write; the epoch must be durable before its first record."""
        epoch = self._leader.epoch + 1
        self._leader = LeaderAndEpoch(None, epoch)
        state = ElectionState(epoch, leader_id=self._voter.id)
        self._after(self._io.submit(partial(self._state_file.write, state)), partial(self._lead, epoch))

    def _lead(self, epoch: int) -> None:
        self._leader = LeaderAndEpoch(self._voter.id, epoch)
        self._announced = False
        self._elected_at, now_ms = self._log.log_end_offset, self._clock.now_ms()
        records = self._first_records()
        batch = control_batch(records, now_ms, base_offset=self._elected_at, leader_epoch=epoch)
        self._write(
            batch, CommittedBatch(self._elected_at, self._elected_at + len(records) - 1, epoch, now_ms, frames=())
        )

    def _first_records(self) -> list[tuple[ControlType, bytes]]:
        """The leader change; with it, in a log that does not have them yet, kraft.version and this node as voter."""
        this = [LeaderChangeMessageVoter(voter_id=self._voter.id)]
        change = LeaderChangeMessage(leader_id=self._voter.id, voters=this, granting_voters=list(this))
        records = [(ControlType.LEADER_CHANGE, encode_bytes(change, 0))]
        wanted = ControlState(KRAFT_VERSION, self._voter.to_voters_record())
        if self._control != wanted:
            records += control_records(wanted)
            self._control = wanted
        return records

    # Durability

    def _write(self, batch: Buffer, committed: CommittedBatch) -> None:
        try:
            self._log.append_prepared(batch, committed.epoch, now_ms=committed.timestamp_ms)
        except StorageError as error:  # half a batch may be there: only a restart can tell
            self._fail(error)
            raise
        self._unflushed.append(committed)
        self._flush()

    def _flush(self) -> None:
        """Sync what is written; while one sync runs, later appends gather for the next."""
        if not self._flushing:
            self._flushing = True
            self._after(self._io.submit(self._log.flush), partial(self._flushed, self._log.log_end_offset))

    def _flushed(self, end_offset: int) -> None:
        self._flushing = False
        if self._log.log_end_offset > end_offset:
            self._flush()
        self._commit(end_offset)

    def _commit(self, end_offset: int) -> None:
        """Everything below `end_offset` is durable on the one disk there is."""
        is_first = self._high_watermark is None
        self._high_watermark = end_offset
        self._log.advance_high_watermark(end_offset)
        batches = self._drop_unflushed(end_offset)
        for listener in list(self._listeners):
            if is_first:  # it was told nothing yet: it gets the whole log, in which these batches are the last
                self._replay(listener, end_offset)
            else:
                listener.on_commit(batches)
        self._announce()

    def _announce(self) -> None:
        """Tell of the own leadership when the epoch's first record is committed."""
        if self._announced or self._high_watermark is None or self._high_watermark <= self._elected_at:
            return
        self._announced = True
        for listener in list(self._listeners):
            listener.on_leader_change(self._leader)

    def _drop_unflushed(self, end_offset: int) -> list[CommittedBatch]:
        batches = []
        while self._unflushed and self._unflushed[0].last_offset < end_offset:
            batches.append(self._unflushed.popleft())
        return batches

    def _after(self, future: "Future[object]", then: Callable[[], None]) -> None:
        """Go on when blocking work is done. Its failure, or ours, ends the node: nothing is tried twice."""

        def proceed(done: "Future[object]") -> None:
            if self._closed or done.cancelled():
                return
            try:
                done.result()
                then()
            except Exception as error:  # noqa: BLE001  an unsynced or unapplied record cannot be passed over
                self._fail(error)

        future.add_done_callback(proceed)

    def _fail(self, error: Exception) -> None:
        self.close()
        self._on_fatal(error)

    # The log's content

    def _replay(self, listener: CommitListener, end_offset: int) -> None:
        for chunk in self._chunks(self._log.log_start_offset, end_offset):
            listener.on_commit([_committed(chunk, position, header) for position, header in iter_headers(chunk)])

    def _chunks(self, start_offset: int, end_offset: int) -> Iterator[Buffer]:
        offset = start_offset
        while offset < end_offset:
            chunk = self._log.read(offset, _READ_BYTES, end_offset, True).data
            yield chunk
            offset = max(header.next_offset for _, header in iter_headers(chunk))

    def _scan(self) -> tuple[ControlState | None, int]:
        """The control state and the last epoch of a log. Raises ForeignQuorum if its voters are not this node."""
        state: ControlState | None = None
        epoch = 0
        for chunk in self._chunks(self._log.log_start_offset, self._log.log_end_offset):
            for position, header in iter_headers(chunk):
                epoch = header.leader_epoch
                if header.is_control:
                    state = read_control_state(chunk, position, state)
        self._check_voters(state or self._formatted_state())
        return state, epoch

    def _formatted_state(self) -> ControlState | None:
        """The voters that formatting left for the first leader."""
        path = join(self._directory, VOTERS_CHECKPOINT)
        return read_snapshot(read_file(self._fs, path)).control if self._fs.exists(path) else None

    def _check_voters(self, state: ControlState | None) -> None:
        if state is None or state.voters is None:
            return
        others = [each for each in state.voters.voters if each.voter_id != self._voter.id]
        if others or not state.voters.voters:
            ids = sorted(each.voter_id for each in state.voters.voters)
            raise ForeignQuorum(
                f"the metadata log belongs to the voters {ids}; node {self._voter.id} cannot run it alone"
            )


def _committed(chunk: Buffer, position: int, header: BatchHeader) -> CommittedBatch:
    frames: Sequence[Buffer] = ()
    if not header.is_control:
        frames = [record.value or b"" for record in iter_records(chunk, position)]
    return CommittedBatch(header.base_offset, header.last_offset, header.leader_epoch, header.max_timestamp, frames)
