"""What a coordinator shard needs of its partition: append one batch, hear of its commit, read everything."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from protocol.errors import ErrorCode


class LoadedRecord(NamedTuple):
    """A record as it is in the log; `value` None is a tombstone."""

    offset: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class LoadedBatch:
    """A batch of the log, opened lazily.

    `producer_id` is −1 outside of transactions. `committed` is set for the marker that ends one: True COMMIT, False
    ABORT. Any other control batch has neither records nor marker.
    """

    next_offset: int
    producer_id: int = -1
    committed: bool | None = None
    records: Iterable[LoadedRecord] = ()


class Cancellable(Protocol):
    """Something awaited that can be forgotten."""

    def cancel(self) -> None: ...


class ShardLog(Protocol):
    """A led partition. Every method raises KafkaError when the partition is not led here or its storage failed."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def max_batch_bytes(self) -> int:
        """How large a batch may be: `max.message.bytes` of the topic."""

    def append(self, records: Sequence[tuple[bytes, bytes | None]], leader_epoch: int, now_ms: int) -> int:
        """Append them as one batch, all or nothing, and return the first one's offset."""

    def when_committed(self, offset: int, callback: Callable[[ErrorCode], None]) -> Cancellable:
        """Call back once the high watermark is above `offset`, or with the error that ended this leadership.

        The watermark of a later leadership says nothing about records of this one, and must not call back NONE.
        """

    async def read(self, offset: int, max_bytes: int) -> Sequence[LoadedBatch]:
        """The batches from `offset` on, at least one, about `max_bytes` of them; none at the end of the log."""
