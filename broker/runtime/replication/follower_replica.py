"""A hosted partition as those see it who keep it up with its leader (`partition.Partition` is one)."""

from asyncio import Future
from collections.abc import Callable
from typing import Protocol

from broker.metrics.topics import TopicMeters
from broker.replication.fetch_state import FetchedReplica
from protocol.primitives import Buffer
from storage.tier_start import TierStart


class FollowerReplica(FetchedReplica, Protocol):
    """`leader_id` is None while nobody leads. `leader_epoch` is that of the reign it is in."""

    @property
    def leader_id(self) -> int | None: ...

    @property
    def traffic(self) -> TopicMeters: ...

    @property
    def is_flushed(self) -> bool:
        """Whether its leader may be told of all that it has: nothing waits for a flush (`flush.messages`)."""
        ...

    def when_flushed(self, callback: Callable[[], None]) -> None:
        """Call back when that is so, or when nobody need wait for it any more."""
        ...

    def append_fetched(
        self, leader_epoch: int, offset: int, records: Buffer, leader_high_watermark: int, leader_log_start_offset: int
    ) -> bool:
        """Append what was answered to a fetch from `offset`, and take over the leader's marks.

        False, with nothing done, if reign or position are others by now. Raises FetchedOutOfOrder, and KafkaError:
        CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR (of which the host knows then).
        """
        ...

    def truncate(self, leader_epoch: int, offset: int) -> "Future[bool]":
        """Remove what lies at `offset` and beyond, and the epochs that begin at the new end.

        False if the reign is over by then; raises KafkaError KAFKA_STORAGE_ERROR.
        """
        ...

    def truncate_fully_and_start_at(self, leader_epoch: int, offset: int) -> "Future[bool]":
        """Remove everything, and begin anew at `offset`; otherwise as `truncate`."""
        ...

    def start_from_tier(self, leader_epoch: int, start: TierStart) -> "Future[bool]":
        """Remove everything, and begin anew where remote storage ends; otherwise as `truncate`."""
        ...
