"""The fetch service of a broker: opens sessions, runs first rounds and delays requests that need more.

The service knows no wire format. `broker.api.records.fetch` translates requests into `SessionRequest` and
`FetchOptions`, and results into responses.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from broker.fetch.pending_fetch import PendingFetch
from broker.fetch.quota import LeaderQuota
from broker.fetch.replica_selector import RackAwareReplicaSelector
from broker.fetch.rounds import FetchOptions, FetchRounds, FetchTerms
from broker.fetch.sessions import FetchSessions, OpenFetch, Position, SessionRefused, SessionRequest
from broker.fetch.source import FetchSource
from broker.runtime.loop.runtime import Runtime
from broker.runtime.partitions.metadata_topic import ClusterMetadataTopic
from broker.runtime.partitions.partition_reads import FetchParams
from broker.runtime.partitions.registry import Partitions

if TYPE_CHECKING:
    from broker.fetch.remote_reads.reads import RemoteReads

T = TypeVar("T")


class FetchService:
    """Serves all fetches of one broker.

    `max_bytes` is the broker's limit for a response (`fetch.max.bytes`). `metadata_topic` is None if clients cannot
    read `__cluster_metadata`, `replica_selector` if consumers are never redirected (`replica.selector.class`), `quota`
    if replication is not throttled, `remote_reads` if there is no remote storage.
    """

    def __init__(
        self,
        partitions: Partitions,
        sessions: FetchSessions,
        runtime: Runtime,
        *,
        max_bytes: int,
        metadata_topic: ClusterMetadataTopic | None = None,
        replica_selector: RackAwareReplicaSelector | None = None,
        quota: LeaderQuota | None = None,
        remote_reads: "RemoteReads | None" = None,
    ) -> None:
        self.source = FetchSource(partitions, metadata_topic)
        self._terms = FetchTerms(runtime.clock, max_bytes, replica_selector, quota, remote_reads)
        self._sessions = sessions
        self._runtime = runtime

    def open(self, request: SessionRequest) -> OpenFetch | SessionRefused:
        """Open or continue the session of a request; the result holds the targets to read."""
        return self._sessions.open(request, int(self._runtime.clock.monotonic_ms()))

    def advance(
        self, session_id: int, epoch: int, positions: Sequence[Position], *, uses_topic_ids: bool
    ) -> OpenFetch | None:
        """Continue a session that has all these targets; None leaves the request to `open`."""
        now_ms = int(self._runtime.clock.monotonic_ms())
        return self._sessions.advance(session_id, epoch, positions, now_ms, uses_topic_ids=uses_topic_ids)

    def rights_of(self, follower: FetchParams) -> int:
        """Return a follower's `rights` for `FetchOptions`, 0 or more."""
        return self.source.partitions.isr_rights(follower.broker_id, follower.broker_epoch)

    def read(self, opened: OpenFetch, options: FetchOptions) -> FetchRounds:
        """Run the first round of a request."""
        rounds = FetchRounds(opened, options, self.source, self._terms)
        rounds.run(first=True)
        return rounds

    def delay(
        self,
        rounds: FetchRounds,
        answer: Callable[[FetchRounds], T],
        when_input_ended: Callable[[Callable[[], None]], None],
    ) -> "asyncio.Future[T]":
        """Return the future response of a request that waits for more records, or for records from the disk.

        `answer` builds the response. `when_input_ended` takes a callback that makes a waiting request answer early.
        """
        pending = PendingFetch(rounds, self._runtime, answer)
        if rounds.is_over:
            pending.finish()
        else:
            pending.wait()
            when_input_ended(pending.answer_now)
        return pending.future
