"""The log of a coordinator shard: append a batch, await its commit, read everything."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from broker.runtime.coordinators.snapshot_store import CoordinatorSnapshot
from broker.runtime.partitions.transaction_marker import WritableMarker
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.lazy_dataclass import lazy_dataclass
from storage.verification import Guard


class LoadedRecord(NamedTuple):
    """A record as in the log; `value` None is a tombstone."""

    offset: int
    key: bytes
    value: bytes | None


@lazy_dataclass(frozen=True, slots=True)
class LoadedBatch:
    """A batch of the log, decoded lazily.

    `leader_epoch` is that of the leader that wrote it. `producer_id` is −1 outside of transactions. `committed` is set
    for a transaction marker: True for COMMIT, False for ABORT. Any other control batch has neither records nor marker.
    """

    next_offset: int
    leader_epoch: LeaderEpoch
    producer_id: int = -1
    committed: bool | None = None
    records: Iterable[LoadedRecord] = ()


class ProducerTransaction(NamedTuple):
    """The transaction that a batch belongs to. `guard` shows that the coordinator has verified a new one (KIP-890)."""

    producer_id: int
    producer_epoch: int
    guard: Guard | None = None


class Cancellable(Protocol):
    """A registered callback that can be cancelled."""

    def cancel(self) -> None: ...


class ShardLog(Protocol):
    """A led partition. Every method raises KafkaError when this node does not lead it or its storage failed."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def max_batch_bytes(self) -> int:
        """Largest batch: `max.message.bytes` of the topic."""

    def check_append(self, leader_epoch: int) -> None:
        """Raise the KafkaError with which an append would be refused now, as far as it does not depend on records."""

    def append(
        self,
        records: Sequence[tuple[bytes, bytes | None]],
        leader_epoch: int,
        now_ms: int,
        transaction: ProducerTransaction | None = None,
    ) -> int:
        """Append the records as one batch, all or nothing, and return the offset of the first."""

    def append_marker(self, marker: WritableMarker, leader_epoch: int, now_ms: int) -> int:
        """Append a transaction marker and return its offset."""

    def when_committed(self, offset: int, callback: Callable[[ErrorCode], None]) -> Cancellable:
        """Call back once the high watermark is above `offset`, or with the error that ended this leadership.

        The high watermark of a later leadership says nothing about records of this one, and must not call back NONE.
        """

    async def newest_snapshot(self) -> CoordinatorSnapshot | None:
        """Return the newest snapshot of the log's beginning; None without one that is whole."""

    async def read(self, offset: int, max_bytes: int) -> Sequence[LoadedBatch]:
        """Return the batches from `offset` on, at least one, about `max_bytes` of them; none at the end of the log."""
