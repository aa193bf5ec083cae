"""Share fetches and acknowledgements of one broker: sessions, share partitions, and their ends.

The service knows no wire format; `broker.api.share.share_fetch` and `broker.api.share.share_acknowledge` translate.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING

from broker.coordination.share_partition_key import SharePartitionKey
from broker.fetch.share.pending import PendingShareFetch
from broker.fetch.share.rounds import ShareFetchOptions, ShareFetchRounds
from broker.net.request import ConnectionInfo
from broker.runtime.loop.runtime import Runtime
from broker.runtime.partitions.registry import Partitions
from broker.runtime.share.share_partitions import SharePartitions
from broker.share.records import AcknowledgementBatch
from broker.share.sessions import ShareFetchSession, ShareMember, ShareSession, ShareSessions, TopicPartitionId
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.fetch.remote_reads.reads import RemoteReads

Acknowledgements = Mapping[TopicPartitionId, Sequence[AcknowledgementBatch] | ErrorCode]
"""The acknowledgements of a member by partition, or the error of a request that is malformed there."""
Results = dict[TopicPartitionId, ErrorCode]


class ShareFetchService:
    """Serves the members of share groups. A session ends with its connection, and releases the member's records.

    `remote_reads` is None if there is no remote storage.
    """

    def __init__(
        self,
        partitions: Partitions,
        shares: SharePartitions,
        sessions: ShareSessions,
        runtime: Runtime,
        remote_reads: "RemoteReads | None" = None,
    ) -> None:
        self.partitions = partitions
        self.shares = shares
        self._sessions = sessions
        self._runtime = runtime
        self._remote_reads = remote_reads
        self._members: dict[str, set[ShareMember]] = {}

    def open(self, request: ShareFetchSession, connection: ConnectionInfo) -> ShareSession | ErrorCode:
        """Open, continue or find the session of a share fetch."""
        session = self._sessions.fetch(request)
        if isinstance(session, ShareSession) and session.connection_id == connection.connection_id:
            members = self._members.get(connection.connection_id)
            if members is None:
                members = self._members[connection.connection_id] = set()
                connection.when_closed(partial(self._on_closed, connection.connection_id))
            members.add(session.member)
        return session

    def proceed(self, member: ShareMember, epoch: int) -> ShareSession | ErrorCode:
        """Continue or find the session of a request that only acknowledges."""
        return self._sessions.acknowledge(member, epoch)

    def fetch(
        self,
        session: ShareSession,
        options: ShareFetchOptions,
        when_input_ended: Callable[[Callable[[], None]], None],
        denied: Set[TopicPartitionId] = frozenset(),
    ) -> "asyncio.Future[ShareFetchRounds]":
        """Return the future records of a session's partitions without `denied`."""
        keys = [key for key in session.take_turn() if key not in denied] if denied else session.take_turn()
        rounds = ShareFetchRounds(session.member, keys, options, self.partitions, self.shares, self._remote_reads)
        pending = PendingShareFetch(rounds, self._runtime)
        if keys and options.max_records > 0:
            began_ms = self._runtime.clock.monotonic_ms()
            pending.future.add_done_callback(partial(self._on_fetched, session.member.group_id, len(keys), began_ms))
        pending.start(when_input_ended)
        return pending.future

    def _on_fetched(
        self, group_id: str, partitions: int, began_ms: float, done: "asyncio.Future[ShareFetchRounds]"
    ) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        rounds, figures = done.result(), self.shares.services.figures
        acquired = sum(1 for each in rounds.results.values() if each.acquired)
        figures.expired_fetches += rounds.has_expired
        if rounds.led and self._sessions.has_group(group_id):
            figures.note_fetch(group_id, partitions, acquired, self._runtime.clock.monotonic_ms() - began_ms)

    async def acknowledge(self, member: ShareMember, acknowledgements: Acknowledgements) -> Results:
        """Acknowledge records of a member; return the results once they are persisted."""
        waiting: dict[TopicPartitionId, asyncio.Future[ErrorCode]] = {}
        results: Results = {}
        for key, batches in acknowledgements.items():
            result = batches if isinstance(batches, ErrorCode) else self._acknowledge(member, key, batches)
            if isinstance(result, ErrorCode):
                results[key] = result
            else:
                waiting[key] = result
        for key, future in waiting.items():
            results[key] = await asyncio.shield(future)
        return results

    async def close(self, session: ShareSession) -> None:
        """End a session, and release the records of its member."""
        if self._sessions.close(session.member) is session:
            for future in self._release(session):
                await asyncio.shield(future)
        self._retire(session.member.group_id)

    def _acknowledge(
        self, member: ShareMember, key: TopicPartitionId, batches: Sequence[AcknowledgementBatch]
    ) -> "ErrorCode | asyncio.Future[ErrorCode]":
        led = self.shares.find(SharePartitionKey(member.group_id, *key))
        if led is None:
            is_known = self.partitions.image.topics.by_id(key[0]) is not None
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_known else ErrorCode.UNKNOWN_TOPIC_ID
        return led.acknowledge(member.member_id, batches)

    def _release(self, session: ShareSession) -> "list[asyncio.Future[ErrorCode]]":
        group_id, member_id = session.member
        futures: list[asyncio.Future[ErrorCode]] = []
        for key in session.partitions:
            led = self.shares.find(SharePartitionKey(group_id, *key))
            result = ErrorCode.NONE if led is None else led.release_member(member_id)
            if not isinstance(result, ErrorCode):
                futures.append(result)
        return futures

    def _on_closed(self, connection_id: str) -> None:
        for session in self._sessions.disconnect(connection_id, self._members.pop(connection_id, ())):
            self._release(session)
            self._retire(session.member.group_id)

    def _retire(self, group_id: str) -> None:
        if not self._sessions.has_group(group_id):
            self.shares.retire(group_id)
            self.shares.services.figures.fetches.pop(group_id, None)
