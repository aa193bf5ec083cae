"""Builds of remote log auxiliary state: a follower restarts its log behind records that only remote storage holds.

One attempt per replica runs in as many loop iterations as it takes and blocks no other replica (Kafka fetches the
state within the fetcher's thread and holds up all its partitions, KAFKA-13560). `RemoteLogAuxStateMachine` decides the
steps; a `RemoteLogSource` provides remote segments and their state. An attempt ends at its next step once the replica
is no longer followed or has a new leader epoch.
"""

from asyncio import Future
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from broker.logs import EventLog
from broker.replication.fetch_actions import AuxStateBuild
from broker.replication.fetch_state import FetchedReplica, FetchPhase, PartitionFetchState
from broker.replication.remote_log_aux_state_machine import (
    AskEpochEnd,
    AskOffset,
    BeginAt,
    Fenced,
    FindSegment,
    GiveUp,
    Load,
    RemoteLogAuxStateMachine,
    Step,
)
from broker.runtime.replication.follower_replica import FollowerReplica
from broker.runtime.replication.leader_offset_queries import EpochAnswer, LeaderOffsetQueries, OffsetAnswer
from protocol.ids import LeaderEpoch
from storage.remote_log_start import RemoteLogStart

if TYPE_CHECKING:
    from storage.tiered.segment_metadata import RemoteSegment

_log: Final = EventLog("broker.fetchers")

_Followed: TypeAlias = PartitionFetchState[FollowerReplica]
_T = TypeVar("_T")


class RemoteLogUnavailable(Exception):
    """Remote storage or its metadata is unavailable. Not a failure if the metadata is merely not loaded yet."""

    def __init__(self, reason: str, *, is_failure: bool = True) -> None:
        super().__init__(reason)
        self.is_failure = is_failure


class RemoteLogSource(Protocol):
    """The remote storage that followers read (`segment_source.py`)."""

    @property
    def skips_remote(self) -> bool:
        """`follower.fetch.last.tiered.offset.enable`."""
        ...

    def segment_for(self, replica: FetchedReplica, epoch: LeaderEpoch, offset: int) -> "Future[RemoteSegment | None]":
        """Find the finished segment that has `offset` in `epoch`. Fails with RemoteLogUnavailable."""
        ...

    def load(self, replica: FetchedReplica, load: "Load[RemoteSegment]") -> "Future[RemoteLogStart]":
        """Load the state of a log that starts at `load.next_offset`. Fails with RemoteLogUnavailable."""
        ...


class BuildOutcome(Protocol):
    """The receiver of an attempt's outcome: exactly one call, unless the attempt is void."""

    def on_start(self, followed: _Followed, start: RemoteLogStart) -> None:
        """Restart the log with the loaded state."""

    def on_nothing_remote(self, followed: _Followed, offset: int) -> None:
        """Restart the log at `offset`, without state."""

    def on_build_failed(self, followed: _Followed, *, is_fenced: bool) -> None:
        """Note a failed attempt, to be repeated unless the leader epoch was fenced."""


class RemoteLogAuxStateBuild:
    """One attempt for one replica. Single-use: call `begin` once."""

    def __init__(
        self,
        build: AuxStateBuild[FollowerReplica],
        source: RemoteLogSource,
        offset_queries: LeaderOffsetQueries,
        outcome: BuildOutcome,
    ) -> None:
        self._followed = build.followed
        self._source = source
        self._offset_queries = offset_queries
        self._outcome = outcome
        self._state: RemoteLogAuxStateMachine[RemoteSegment] = RemoteLogAuxStateMachine(
            build.leader_log_start, skips_remote=source.skips_remote and _is_empty(build.followed)
        )

    def begin(self) -> None:
        self._followed.partition.traffic.build_remote_log_aux_state_requests += 1
        self._perform(self._state.begin())

    @property
    def _is_void(self) -> bool:
        return self._followed.phase is not FetchPhase.BUILDING

    def _perform(self, step: "Step[RemoteSegment]") -> None:
        followed, partition = self._followed, self._followed.partition
        match step:
            case AskOffset(timestamp):
                self._offset_queries.query_offset(partition, followed.leader_epoch, timestamp, self._on_offset)
            case AskEpochEnd(epoch):
                self._offset_queries.query_epoch_end(partition, followed.leader_epoch, epoch, self._on_epoch_end)
            case FindSegment(epoch, offset):
                self._source.segment_for(partition, epoch, offset).add_done_callback(self._on_segment)
            case Load():
                self._source.load(partition, step).add_done_callback(self._on_loaded)
            case BeginAt(offset):
                self._outcome.on_nothing_remote(followed, offset)
            case GiveUp(reason, is_failure):
                self._fail(reason, is_failure=is_failure)
            case Fenced():
                self._outcome.on_build_failed(followed, is_fenced=True)

    def _on_offset(self, answer: OffsetAnswer) -> None:
        if not self._is_void:
            self._perform(self._state.on_offset(*answer))

    def _on_epoch_end(self, answer: EpochAnswer) -> None:
        if not self._is_void:
            self._perform(self._state.on_epoch_end(*answer))

    def _on_segment(self, done: "Future[RemoteSegment | None]") -> None:
        if not self._is_over(done):
            self._perform(self._state.on_segment(done.result()))

    def _on_loaded(self, done: "Future[RemoteLogStart]") -> None:
        if not self._is_over(done):
            self._outcome.on_start(self._followed, done.result())

    def _is_over(self, done: "Future[_T]") -> bool:
        """Whether the attempt has ended: void before, or failed with this result."""
        error = RemoteLogUnavailable("the node is stopping", is_failure=False) if done.cancelled() else done.exception()
        if self._is_void or error is None:
            return self._is_void
        if isinstance(error, RemoteLogUnavailable):
            self._fail(str(error), is_failure=error.is_failure)
            return True
        self._fail(str(error), is_failure=True)
        raise error

    def _fail(self, reason: str, *, is_failure: bool) -> None:
        followed, partition = self._followed, self._followed.partition
        if is_failure:
            partition.traffic.build_remote_log_aux_state_errors += 1
        if not followed.failures:
            name = f"{partition.topic}-{partition.index}"
            _log.warning("Cannot build the remote log auxiliary state of a replica", partition=name, reason=reason)
        self._outcome.on_build_failed(followed, is_fenced=False)


def _is_empty(followed: _Followed) -> bool:
    """Whether the replica has no records and no epochs since its log was created or emptied."""
    position = followed.position
    return position.offset == position.log_start_offset and position.last_epoch < 0
