"""States of records in delivery, acknowledgements, and the values that share partitions exchange (KIP-932)."""

from enum import IntEnum
from typing import Final, NamedTuple


class RecordState(IntEnum):
    """The delivery state of a record, by its number in the persisted state. ACQUIRED is never persisted."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        """Whether the record is never delivered again."""
        return self in _FINAL


_FINAL: Final = frozenset((RecordState.ACKNOWLEDGED, RecordState.ARCHIVED))


class AcknowledgeType(IntEnum):
    """The reaction of a consumer to a record, by its number in requests. RENEW is KIP-1222's."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


STATE_AFTER: Final = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}
"""The state of a record after each acknowledgement that ends its acquisition."""


class AcquireMode(IntEnum):
    """The meaning of a request's record limit (KIP-1206).

    BATCH_OPTIMIZED exceeds the limit up to the end of a batch of the log; RECORD_LIMIT never exceeds it.
    """

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class OffsetSpan(NamedTuple):
    """Offsets from `first` to `last`, both included."""

    first: int
    last: int


class AcknowledgementBatch(NamedTuple):
    """Acknowledgements of the records from `first` to `last`: one type for all of them, or one for each."""

    first: int
    last: int
    types: tuple[AcknowledgeType, ...]


class DeliveryBatch(NamedTuple):
    """The persisted state of the records from `first` to `last`."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


class AcquiredRecords(NamedTuple):
    """Records from `first` to `last` that a member has acquired, each for the `delivery_count`-th time."""

    first: int
    last: int
    delivery_count: int


class FetchedBatches(NamedTuple):
    """Batches of the log that a read at `fetch_offset` has found, in the order of offsets.

    `aborted` are those of aborted transactions; empty for a group that reads uncommitted records.
    """

    fetch_offset: int
    batches: tuple[OffsetSpan, ...]
    aborted: tuple[OffsetSpan, ...] = ()


class AcquireRequest(NamedTuple):
    """The wish of a member for records. `batch_size` is the best number of records in a batch of acquired records."""

    member_id: str
    max_records: int
    batch_size: int
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class ShareLimits(NamedTuple):
    """The settings of a share partition.

    `delivery_limit` is `group.share.delivery.count.limit`, `max_in_flight` is `group.share.partition.max.record.locks`.
    """

    delivery_limit: int
    max_in_flight: int

    @property
    def throttled_from(self) -> int:
        """The delivery count from which records are delivered in small numbers, as one of them may be harmful."""
        return max(2, (self.delivery_limit + 1) // 2)
