"""Reads of single partitions from the local logs of followers, as a consumer reads them (KIP-392).

A follower is first queried for the earliest offset of its local log (ListOffsets, timestamp -4, KIP-405), because it
would look in remote storage for an earlier one. Its response to the fetch is bounded by its own high watermark or last
stable offset, and fenced by the leader epoch, so the records are committed ones of the leader's history.

A look-up by time asks the follower for the offset, and fetches the record there: its end may not be committed, and only
a fetch proves that it is. A follower without such a record proves by a fetch that it has the end of the range.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeVar

from broker.fetch.remote_reads.replica_copies import ReplicaBatches
from broker.metadata.image.metadata_image import MetadataImage
from broker.net.peer import SocketAddress
from broker.replication.leader import LeaderRole
from broker.runtime.loop.waiters import Loop
from broker.runtime.partitions.offset_lookup import DEBUGGING_REPLICA_ID, EARLIEST_LOCAL
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.reads import FetchIsolation
from broker.runtime.remote_log.replica_lookups import ReplicaLookup
from broker.runtime.replication.fetch_transport import FetchTransport, LeaderConnection, Unanswered
from protocol.errors import ErrorCode
from protocol.ids import BrokerId
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.records.batch import crc_is_valid, iter_headers, parse_header
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import iter_records
from storage.segment import FoundTimestamp

READ_COMMITTED: Final = 1
SEARCH_BYTES: Final = 64 * 1024
"""Limit for one fetch of a look-up by time, which needs one batch."""

R = TypeVar("R")


class FollowerCopies:
    """Implements ReplicaCopies and ReplicaLookups over the connections between brokers.

    A connection is opened for a broker's first read and kept until `close`. `listener` names the listener of the
    brokers' endpoints.
    """

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        transport: FetchTransport,
        loop: Loop,
        *,
        own_id: BrokerId,
        listener: str,
    ) -> None:
        self._image = image
        self._transport = transport
        self._loop = loop
        self._client_id = f"broker-{own_id}-follower-copies"
        self._listener = listener
        self._connections: dict[BrokerId, tuple[SocketAddress, LeaderConnection]] = {}

    async def read(
        self, partition: Partition, offset: int, max_bytes: int, isolation: FetchIsolation
    ) -> ReplicaBatches | None:
        """Return committed batches from `offset` on; None if no follower has it, or this broker does not lead."""
        for connection in self._connections_of(partition):
            start = await self._local_start(connection, partition)
            if start is None or start > offset:
                continue
            found = await self._fetch(connection, partition, offset, max_bytes, isolation)
            if found is not None:
                return found
        return None

    async def first_at_or_after(
        self, partition: Partition, timestamp: int, first: int, upper: int
    ) -> ReplicaLookup | None:
        """Search the range on the first follower that has all of it. Implements ReplicaLookups."""
        for connection in self._connections_of(partition):
            start = await self._local_start(connection, partition)
            if start is None or start > first:
                continue
            hint = await self._offset_for(connection, partition, timestamp)
            if hint is None:
                continue
            begin = upper - 1 if hint < 0 or hint >= upper else max(first, hint)
            result = await self._search(connection, partition, timestamp, begin, upper)
            if result is not None:
                return result
        return None

    async def _search(
        self, connection: LeaderConnection, partition: Partition, timestamp: int, begin: int, upper: int
    ) -> ReplicaLookup | None:
        """Fetch from `begin` on up to the first record that is late enough; None if the follower lacks records."""
        at = begin
        while at < upper:
            batches = await self._fetch(connection, partition, at, SEARCH_BYTES, FetchIsolation.HIGH_WATERMARK)
            if batches is None:
                return None
            try:
                for position, header in iter_headers(batches.data):
                    found = None if header.max_timestamp < timestamp else _first(batches.data, position, timestamp, at)
                    if found is not None:
                        return ReplicaLookup(found if found.offset < upper else None)
                    at = header.next_offset
            except MalformedRecords:
                return None
        return ReplicaLookup(None)

    def close(self) -> None:
        """Close all connections: reads under way find no replica."""
        for _, connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _connections_of(self, partition: Partition) -> Iterator[LeaderConnection]:
        """Yield the connections to the live followers, the in-sync ones first."""
        role = partition.role
        if not isinstance(role, LeaderRole):
            return
        for broker_id in sorted(role.followers, key=lambda each: (each not in role.isr.committed, each)):
            broker = self._image().brokers.get(broker_id)
            endpoint = None if broker is None or broker.fenced else broker.endpoints.get(self._listener)
            if endpoint is not None:
                yield self._connection(broker_id, SocketAddress(endpoint.host, endpoint.port))

    def _connection(self, broker_id: BrokerId, address: SocketAddress) -> LeaderConnection:
        known = self._connections.get(broker_id)
        if known is not None and known[0] == address:
            return known[1]
        if known is not None:
            known[1].close()
        connection = self._transport.connect(address, self._client_id)
        self._connections[broker_id] = address, connection
        return connection

    async def _local_start(self, connection: LeaderConnection, partition: Partition) -> int | None:
        """Return the earliest local offset of a follower; None without an answer."""
        start = await self._offset_for(connection, partition, EARLIEST_LOCAL)
        return None if start is None or start < 0 else start

    async def _offset_for(self, connection: LeaderConnection, partition: Partition, timestamp: int) -> int | None:
        """Return a follower's offset for a timestamp, -1 if it has none; None without an answer."""
        wanted = ListOffsetsPartition(partition.index, partition.leader_epoch, timestamp)
        request = ListOffsetsRequest(
            replica_id=DEBUGGING_REPLICA_ID, topics=[ListOffsetsTopic(partition.topic, [wanted])]
        )
        answer: ListOffsetsResponse | None = await self._answer(partial(connection.list_offsets, request))
        if answer is None:
            return None
        for each in (entry for found in answer.topics for entry in found.partitions):
            if each.error_code == ErrorCode.NONE:
                return each.offset
        return None

    async def _fetch(
        self, connection: LeaderConnection, partition: Partition, offset: int, max_bytes: int, isolation: FetchIsolation
    ) -> ReplicaBatches | None:
        wanted = FetchPartition(partition.index, partition.leader_epoch, offset, partition_max_bytes=max_bytes)
        reads_committed = isolation is FetchIsolation.LAST_STABLE
        request = FetchRequest(
            max_bytes=max_bytes,
            isolation_level=READ_COMMITTED if reads_committed else 0,
            topics=[FetchTopic(partition.topic, partition.topic_id, [wanted])],
        )
        answer: FetchResponse | None = await self._answer(partial(connection.fetch, request))
        if answer is None:
            return None
        for each in (entry for topic in answer.responses for entry in topic.partitions):
            if each.error_code == ErrorCode.NONE:
                return _batches(each, offset, reads_committed=reads_committed)
        return None

    async def _answer(self, send: Callable[[Callable[[R | Unanswered], None]], None]) -> R | None:
        """Send a request; return its response, None without one."""
        answered: asyncio.Future[R | Unanswered] = self._loop.create_future()
        send(partial(_settle, answered))
        outcome = await answered
        return None if isinstance(outcome, Unanswered) else outcome


def _settle(answered: "asyncio.Future[R]", outcome: R) -> None:
    if not answered.done():
        answered.set_result(outcome)


def _first(data: memoryview, position: int, timestamp: int, from_offset: int) -> FoundTimestamp | None:
    """Return the first record of a batch from an offset on with at least the timestamp. Raise MalformedRecords."""
    for record in iter_records(data, position):
        if record.timestamp >= timestamp and record.offset >= from_offset:
            return FoundTimestamp(record.timestamp, record.offset, parse_header(data, position).leader_epoch)
    return None


def _batches(answer: PartitionData, offset: int, *, reads_committed: bool) -> ReplicaBatches | None:
    """Return the intact batches of a response; None if the first one is damaged or does not reach `offset`."""
    data, end = memoryview(answer.records or b""), 0
    try:
        for position, header in iter_headers(data):
            if not crc_is_valid(data, position, header.size) or (position == 0 and header.last_offset < offset):
                break
            end = position + header.size
    except MalformedBatch:
        pass
    if not end:
        return None
    aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
    return ReplicaBatches(data[:end], aborted if reads_committed else None)
