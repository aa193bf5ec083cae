"""The state machine on top of the simulated metadata log, and its snapshots.

The state consists of a running digest of all committed records, their number, and the last value of each of a few keys,
so that snapshots are neither empty nor constant. Snapshots are canonical: they follow from the state alone.
"""

from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Protocol

from broker.quorum.identity import LeaderAndEpoch, SnapshotId
from broker.quorum.membership.voters import VoterSet
from broker.runtime.quorum.quorum import CommittedBatch, RawSnapshotReader
from protocol.compiler import encode_bytes
from protocol.ids import LeaderEpoch, Offset
from protocol.messages.common_records import SnapshotFooterRecord, SnapshotHeaderRecord
from protocol.records.batch import iter_headers
from protocol.records.control import ControlType, control_batch
from protocol.records.quorum_control import ControlState, control_records
from protocol.records.reader import iter_records
from tests.support.fakes.batches import data_batch

KEYS: Final = 24
_DIGEST_BYTES: Final = 16
_RECORDS_PER_BATCH: Final = 10


def frame_of(number: int, size: int) -> bytes:
    """Return a record with this number; its key is the number modulo KEYS, the rest is padding."""
    return number.to_bytes(8, "big") + bytes(size)


@dataclass(slots=True)
class State:
    """The state below `offset`. `epoch` and `timestamp_ms` are those of the last record."""

    offset: int = 0
    epoch: int = 0
    timestamp_ms: int = -1
    digest: bytes = bytes(_DIGEST_BYTES)
    values: dict[int, bytes] = field(default_factory=dict)

    def apply(self, batch: CommittedBatch) -> None:
        digest = blake2b(self.digest, digest_size=_DIGEST_BYTES)
        for frame in batch.frames:
            content = bytes(frame)
            digest.update(content)
            self.values[int.from_bytes(content[:8], "big") % KEYS] = content
        digest.update(b"%d %d %d" % (batch.last_offset, batch.epoch, batch.timestamp_ms))
        self.digest = digest.digest()
        self.offset = batch.last_offset + 1
        self.epoch = batch.epoch
        self.timestamp_ms = batch.timestamp_ms

    @property
    def snapshot_id(self) -> SnapshotId:
        return SnapshotId(Offset(self.offset), LeaderEpoch(self.epoch))

    def write(self, kraft_version: int, voters: VoterSet) -> bytes:
        """Return the bytes of the snapshot."""
        frames = [self.digest, *(self.values[key] for key in sorted(self.values))]
        header = SnapshotHeaderRecord(last_contained_log_timestamp=self.timestamp_ms)
        opening = [(ControlType.SNAPSHOT_HEADER, encode_bytes(header, 0))]
        if kraft_version > 0:
            opening += control_records(ControlState(kraft_version, voters.to_record()))
        epoch, time_ms = self.epoch, self.timestamp_ms
        batches = [control_batch(opening, time_ms, base_offset=0, leader_epoch=LeaderEpoch(epoch))]
        offset = len(opening)
        for start in range(0, len(frames), _RECORDS_PER_BATCH):
            chunk = frames[start : start + _RECORDS_PER_BATCH]
            batches.append(data_batch(chunk, base_offset=offset, epoch=epoch, timestamp_ms=time_ms))
            offset += len(chunk)
        footer = (ControlType.SNAPSHOT_FOOTER, encode_bytes(SnapshotFooterRecord(), 0))
        batches.append(control_batch([footer], time_ms, base_offset=offset, leader_epoch=LeaderEpoch(epoch)))
        return b"".join(batches)

    @classmethod
    def read(cls, snapshot_id: SnapshotId, content: bytes) -> "State":
        """Return the state in a snapshot."""
        frames: list[bytes] = []
        timestamp_ms = -1
        for position, header in iter_headers(content):
            timestamp_ms = header.max_timestamp
            if not header.is_control:
                frames += [bytes(record.value or b"") for record in iter_records(content, position)]
        values = {int.from_bytes(frame[:8], "big") % KEYS: frame for frame in frames[1:]}
        return cls(snapshot_id.end_offset, snapshot_id.epoch, timestamp_ms, frames[0], values)


class StateWitness(Protocol):
    """Observer of the calls of a node's state machine."""

    def on_batch(self, batch: CommittedBatch) -> None: ...

    def on_applied(self, state: State) -> None: ...

    def on_load(self, snapshot_id: SnapshotId) -> None: ...

    def on_gap(self, expected: int, base_offset: int) -> None: ...

    def on_leader(self, leader: LeaderAndEpoch) -> None: ...


class StateMachine:
    """A state machine. Implements QuorumListener. `defer` loads a snapshot later, or at once and returns None."""

    def __init__(self, witness: StateWitness, defer: Callable[[Callable[[], None]], "Future[None] | None"]) -> None:
        self._witness = witness
        self._defer = defer
        self.state = State()
        self.bytes_since_snapshot = 0
        self.is_loading = False

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        for batch in batches:
            if batch.base_offset != self.state.offset or self.is_loading:
                self._witness.on_gap(self.state.offset, batch.base_offset)
            self._witness.on_batch(batch)
            self.state.apply(batch)
            self.bytes_since_snapshot += sum(map(len, batch.frames)) + 61
            self._witness.on_applied(self.state)

    def on_load_snapshot(self, snapshot_id: SnapshotId, reader: RawSnapshotReader) -> "Future[None] | None":
        self._witness.on_load(snapshot_id)
        self.is_loading = True

        def load() -> None:
            chunks = []
            while chunk := reader.next_chunk():
                chunks.append(chunk)
            reader.close()
            self.state = State.read(snapshot_id, b"".join(chunks))
            self.bytes_since_snapshot = 0
            self.is_loading = False
            self._witness.on_applied(self.state)

        return self._defer(load)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self._witness.on_leader(leader)
