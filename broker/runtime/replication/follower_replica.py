"""A follower replica as its fetcher drives it (`hosted_follower.HostedFollower` implements the protocol)."""

from asyncio import Future
from collections.abc import Callable
from typing import Protocol

from broker.metrics.topics import TopicMeters
from broker.replication.fetch_state import FetchedReplica
from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer
from storage.remote_log_start import RemoteLogStart


class FollowerReplica(FetchedReplica, Protocol):
    """`leader_id` is None while the partition has no leader."""

    @property
    def leader_id(self) -> int | None: ...

    @property
    def traffic(self) -> TopicMeters: ...

    @property
    def is_flushed(self) -> bool:
        """Whether the replica may report its log end: no record waits for a flush (`flush.messages`)."""
        ...

    def when_flushed(self, callback: Callable[[], None]) -> None:
        """Call back once `is_flushed` holds, or once the wait is pointless."""
        ...

    def append_fetched(
        self,
        leader_epoch: LeaderEpoch,
        offset: int,
        records: Buffer,
        leader_high_watermark: int,
        leader_log_start_offset: int,
    ) -> bool:
        """Append the answer to a fetch from `offset`; take over the leader's high watermark and log start offset.

        Returns False, with nothing done, if the leader epoch or the log end has changed. Raises FetchedOutOfOrder, and
        KafkaError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR (the log directory is offline then).
        """
        ...

    def truncate(self, leader_epoch: LeaderEpoch, offset: int) -> "Future[bool]":
        """Remove records from `offset` on, and the epoch entries that begin at the new end.

        The result is False if the leader epoch is over by then. Fails with KafkaError KAFKA_STORAGE_ERROR.
        """
        ...

    def truncate_fully_and_start_at(self, leader_epoch: LeaderEpoch, offset: int) -> "Future[bool]":
        """Remove all records and restart the log at `offset`. Otherwise as `truncate`."""
        ...

    def start_behind_remote_log(self, leader_epoch: LeaderEpoch, start: RemoteLogStart) -> "Future[bool]":
        """Remove all records and restart the log where remote storage ends. Otherwise as `truncate`."""
        ...
