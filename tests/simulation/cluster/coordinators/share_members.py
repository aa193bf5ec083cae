"""Members of share groups, as clients run them: they fetch, and accept, release or reject what they have acquired."""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from broker.share.records import AcknowledgeType
from broker.transactions.state import TransactionPartition
from protocol.errors import ErrorCode
from protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from protocol.messages.share_fetch import AcknowledgementBatch as FetchedAcknowledgement
from protocol.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse
from protocol.messages.share_group_heartbeat import Assignment, ShareGroupHeartbeatRequest
from protocol.primitives import Uuid, uuid_to_text
from tests.simulation.cluster.coordinators.services import WireServices
from tests.simulation.transactions.clients import Application, Program

GROUP_ID: Final = "share"
_VERSION: Final = 2
_HEARTBEAT_VERSION: Final = 1
_REJOIN: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
_HEARTBEAT_MS: Final = 300.0
_RETRY_MS: Final = 80.0
_WAIT_MS: Final = 100
_JOIN_EPOCH: Final = 0
_LEAVE_EPOCH: Final = -1
_ACCEPT: Final = (1, 0, 0)
_WEIGHTS: Final = (8, 3, 1)
_TYPES: Final = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)

Acquired = list[tuple[int, int]]
"""The first and the last offset of each range."""


class ShareMember(Application):
    """A member of the share group of one partition. Near the end it accepts every record until `is_finished`.

    The member fetches while the partition is assigned to it by the last response of the coordinator.
    """

    def __init__(
        self, source: TransactionPartition, services: WireServices, rng: Random, is_finished: Callable[[], bool]
    ) -> None:
        self._source = source
        self._wires = services
        self._rng = rng
        self._is_finished = is_finished
        self._member_id = uuid_to_text(Uuid(rng.randbytes(16)))
        self._group_epoch = _JOIN_EPOCH
        self._session_epoch = 0
        self._next_beat_ms = 0.0
        self._is_assigned = False
        super().__init__(services)

    def _run(self) -> Program:
        acquired: Acquired = []
        while not (self.is_stopping and self._is_finished()):
            yield from self._beat()
            if not self._is_assigned:
                acquired = []
                yield _RETRY_MS
                continue
            if acquired and self._rng.random() < 0.3:
                yield from self._acknowledge(acquired)
                acquired = []
            acquired = yield from self._fetch(acquired)
            yield self._rng.choice((10.0, 10.0, 100.0, 100.0, 1_200.0)) * self._rng.random()
        self._group_epoch, self._next_beat_ms = _LEAVE_EPOCH, 0.0
        yield from self._beat()

    def _ask(self, partition: TransactionPartition, make: Callable[[], Any], version: int) -> Program:
        """Send a request once; return the response, or None without one."""

        def read(response: Any) -> Any:
            code = ErrorCode(response.error_code)
            return code if code in self._wires.again else response

        answer = yield self._wires.request(partition, make, version, read, may_stray=False)
        return None if isinstance(answer, ErrorCode) else answer

    def _beat(self) -> Program:
        """Send a heartbeat to the group coordinator if one is due."""
        if self.services.now_ms() < self._next_beat_ms:
            return

        def make() -> ShareGroupHeartbeatRequest:
            topics = [self._source.topic]
            return ShareGroupHeartbeatRequest(
                GROUP_ID, self._member_id, self._group_epoch, subscribed_topic_names=topics
            )

        response = yield from self._ask(self._wires.group_partition(GROUP_ID), make, _HEARTBEAT_VERSION)
        if response is None:
            return
        code = ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            self._group_epoch = response.member_epoch
            if response.assignment is not None:
                self._is_assigned = self._is_in(response.assignment)
            self._next_beat_ms = self.services.now_ms() + _HEARTBEAT_MS
        else:
            assert code in _REJOIN, code
            self._group_epoch, self._is_assigned = _JOIN_EPOCH, False

    def _is_in(self, assignment: Assignment) -> bool:
        """Whether an assignment includes the partition."""
        topic_id = self._wires.topic_id(self._source.topic)
        return any(
            each.topic_id == topic_id and self._source.partition in each.partitions
            for each in assignment.topic_partitions
        )

    def _types(self) -> list[int]:
        weights = _ACCEPT if self.is_stopping else _WEIGHTS
        return [int(kind) for kind in self._rng.choices(_TYPES, weights)]

    def _fetch(self, acquired: Acquired) -> Program:
        """Acknowledge ranges, and acquire others. A new session acknowledges nothing."""
        topic_id = self._wires.topic_id(self._source.topic)
        batches = [] if self._session_epoch == 0 else [(*each, self._types()) for each in acquired]

        def make() -> ShareFetchRequest:
            wanted = FetchPartition(
                self._source.partition,
                acknowledgement_batches=[FetchedAcknowledgement(first, last, types) for first, last, types in batches],
            )
            topics = [FetchTopic(topic_id, [wanted])] if self._session_epoch == 0 or batches else []
            return ShareFetchRequest(
                GROUP_ID,
                self._member_id,
                self._session_epoch,
                max_wait_ms=_WAIT_MS,
                min_bytes=1,
                max_bytes=2_000,
                max_records=self._rng.randint(1, 10),
                batch_size=10,
                topics=topics,
            )

        response: ShareFetchResponse | None = yield from self._ask(self._source, make, _VERSION)
        if response is None or response.error_code:
            self._session_epoch = 0
            yield _RETRY_MS
            return []
        self._session_epoch += 1
        parts = [part for topic in response.responses for part in topic.partitions]
        if any(part.error_code for part in parts):
            self._wires.forget(self._source)
            self._session_epoch = 0
            yield _RETRY_MS
        return [(each.first_offset, each.last_offset) for part in parts for each in part.acquired_records]

    def _acknowledge(self, acquired: Acquired) -> Program:
        """Acknowledge ranges without a fetch."""
        if self._session_epoch == 0:
            return
        topic_id = self._wires.topic_id(self._source.topic)
        batches = [(*each, self._types()) for each in acquired]

        def make() -> ShareAcknowledgeRequest:
            part = AcknowledgePartition(
                self._source.partition,
                [AcknowledgementBatch(first, last, types) for first, last, types in batches],
            )
            topics = [AcknowledgeTopic(topic_id, [part])]
            return ShareAcknowledgeRequest(GROUP_ID, self._member_id, self._session_epoch, topics=topics)

        response = yield from self._ask(self._source, make, _VERSION)
        self._session_epoch = 0 if response is None or response.error_code else self._session_epoch + 1
