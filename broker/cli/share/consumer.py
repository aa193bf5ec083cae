"""A consumer of a share group: acquires records of its partitions and acknowledges them.

Each leader keeps a share session (KIP-932): the first fetch of epoch 0 names the partitions, later ones only carry
acknowledgements. Records that are never acknowledged are released when the session is closed.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import NamedTuple

from broker.cli.share.membership import Assignment, ShareMembership
from broker.client import Client, Connection, raise_for
from protocol.errors import ErrorCode, KafkaError
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages import share_acknowledge as acknowledging
from protocol.messages import share_fetch as fetching
from protocol.primitives import Uuid
from protocol.records.batch import BatchHeader, iter_headers
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import FullRecord, iter_records
from storage.directories.checkpoints import TopicPartition

ACCEPT, RELEASE, REJECT = 1, 2, 3
"""Types of acknowledgement."""

FINAL_EPOCH = -1
MAX_BYTES = 50 << 20
UNASSIGNED_WAIT_S = 0.1
"""Pause of a poll without partitions, in which the next heartbeat may become due."""

MAX_POLL_RECORDS = 500
PURPOSE = "share"
STALE_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
SESSION_ERRORS = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})


class ShareRecord(NamedTuple):
    """An acquired record. Its acknowledgement covers the offsets from `first` to `last`, gaps included."""

    partition: TopicPartition
    topic_id: Uuid
    header: BatchHeader
    record: FullRecord
    delivery_count: int
    first: int
    last: int


Key = tuple[Uuid, int]


@lazy_dataclass(slots=True)
class _Session:
    """The share session with one leader, and acknowledgements that the next request carries."""

    partitions: frozenset[Key]
    epoch: int = 0
    pending: defaultdict[Key, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))


class ShareConsumer:
    """A member of a share group that reads one topic. Call `poll` until done, then `close`."""

    def __init__(self, client: Client, group: str, topic: str, max_wait_ms: int = 500) -> None:
        self._client = client
        self._topic = topic
        self._member = ShareMembership(client, group, topic)
        self._max_wait_ms = max_wait_ms
        self._sessions: dict[int, _Session] = {}
        self._assigned: Assignment = frozenset()

    def poll(self) -> list[ShareRecord]:
        """Send due heartbeats and pending acknowledgements, and return newly acquired records.

        Raises KafkaError or ClientError.
        """
        self._member.keep_alive()
        if self._member.assignment != self._assigned or (self._assigned and not self._sessions):
            self._open_sessions()
        if self._sessions:
            return self._client.retrying(self._fetch)
        time.sleep(UNASSIGNED_WAIT_S)
        return []

    def acknowledge(self, record: ShareRecord, kind: int) -> None:
        """Add an acknowledgement of type `kind`; `poll`, `commit` and `close` send it."""
        key = (record.topic_id, record.partition.partition)
        for session in self._sessions.values():
            if key in session.partitions:
                session.pending[key].append((record.first, record.last, kind))

    def commit(self) -> None:
        """Send the pending acknowledgements and wait for the responses. Raises KafkaError or ClientError."""
        for leader, session in self._sessions.items():
            if session.pending:
                self._acknowledge(leader, session, session.epoch)
                session.epoch += 1

    def close(self) -> None:
        """Send pending acknowledgements, release other records, and leave. Raises KafkaError or ClientError."""
        for leader, session in self._sessions.items():
            if session.epoch:
                self._acknowledge(leader, session, FINAL_EPOCH)
        self._sessions.clear()
        self._member.leave()

    def _open_sessions(self) -> None:
        self.commit()
        by_leader: defaultdict[int, set[Key]] = defaultdict(set)
        self._assigned = self._member.assignment
        topics = self._client.retrying(lambda: self._client.leaders([self._topic])) if self._assigned else {}
        for topic in topics.values():
            for partition in topic.partitions:
                if (topic.topic_id, partition.partition_index) in self._assigned:
                    by_leader[partition.leader_id].add((topic.topic_id, partition.partition_index))
        self._sessions = {leader: _Session(frozenset(keys)) for leader, keys in by_leader.items()}

    def _connection(self, leader: int) -> Connection:
        return self._client.node(leader, PURPOSE)

    def _fetch(self) -> list[ShareRecord]:
        for leader, session in self._sessions.items():
            self._connection(leader).send(self._fetch_request(session))
        found: list[ShareRecord] = []
        is_stale = False
        for leader, session in self._sessions.items():
            response = self._connection(leader).receive(fetching.ShareFetchResponse)
            if response.error_code in SESSION_ERRORS:
                session.epoch = 0
                continue
            raise_for(response.error_code, f"share group {self._member.group!r}", response.error_message)
            session.epoch += 1
            for topic in response.responses:
                for data in topic.partitions:
                    is_stale |= data.error_code in STALE_ERRORS
                    found += self._acquired(topic.topic_id, data)
        if is_stale:
            self._sessions = {}
        return found

    def _fetch_request(self, session: _Session) -> fetching.ShareFetchRequest:
        keys = session.partitions if session.epoch == 0 else session.pending.keys()
        partitions: defaultdict[Uuid, list[fetching.FetchPartition]] = defaultdict(list)
        for topic_id, partition in keys:
            batches = [
                fetching.AcknowledgementBatch(first, last, [kind])
                for first, last, kind in _merged(session.pending.get((topic_id, partition), ()))
            ]
            partitions[topic_id].append(
                fetching.FetchPartition(partition, acknowledgement_batches=batches if session.epoch else [])
            )
        session.pending.clear()
        return fetching.ShareFetchRequest(
            group_id=self._member.group,
            member_id=self._member.member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            max_records=MAX_POLL_RECORDS,
            batch_size=MAX_POLL_RECORDS,
            topics=[fetching.FetchTopic(topic_id, group) for topic_id, group in partitions.items()],
        )

    def _acknowledge(self, leader: int, session: _Session, epoch: int) -> None:
        partitions: defaultdict[Uuid, list[acknowledging.AcknowledgePartition]] = defaultdict(list)
        for (topic_id, partition), acknowledged in session.pending.items():
            batches = [
                acknowledging.AcknowledgementBatch(first, last, [kind]) for first, last, kind in _merged(acknowledged)
            ]
            partitions[topic_id].append(acknowledging.AcknowledgePartition(partition, batches))
        session.pending.clear()
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=self._member.group,
            member_id=self._member.member_id,
            share_session_epoch=epoch,
            topics=[acknowledging.AcknowledgeTopic(topic_id, group) for topic_id, group in partitions.items()],
        )
        response = self._connection(leader).call(request, acknowledging.ShareAcknowledgeResponse)
        raise_for(response.error_code, f"share group {self._member.group!r}", response.error_message)
        for topic in response.responses:
            for result in topic.partitions:
                raise_for(result.error_code, f"{self._topic}-{result.partition_index}", result.error_message)

    def _acquired(self, topic_id: Uuid, data: fetching.PartitionData) -> Iterator[ShareRecord]:
        """Yield the acquired records of a partition. Raises KafkaError."""
        partition = TopicPartition(self._topic, data.partition_index)
        if data.error_code in STALE_ERRORS:
            return
        raise_for(data.error_code, str(partition), data.error_message)
        raise_for(data.acknowledge_error_code, f"acknowledgement of {partition}", data.acknowledge_error_message)
        try:
            records = [
                (header, record)
                for position, header in iter_headers(data.records or b"")
                if not header.is_control
                for record in iter_records(data.records or b"", position)
            ]
        except (MalformedBatch, MalformedRecords) as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{partition}: {error}") from error
        for acquired in data.acquired_records:
            inside = [each for each in records if acquired.first_offset <= each[1].offset <= acquired.last_offset]
            first = acquired.first_offset
            for index, (header, record) in enumerate(inside):
                last = acquired.last_offset if index == len(inside) - 1 else record.offset
                yield ShareRecord(partition, topic_id, header, record, acquired.delivery_count, first, last)
                first = last + 1


def _merged(acknowledged: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Join adjacent ranges of one type."""
    merged: list[tuple[int, int, int]] = []
    for first, last, kind in sorted(acknowledged):
        if merged and merged[-1][1] + 1 == first and merged[-1][2] == kind:
            merged[-1] = (merged[-1][0], last, kind)
        else:
            merged.append((first, last, kind))
    return merged
