"""Membership in a share group (KIP-932): heartbeats, and the partitions that the coordinator assigns.

There is no thread: the caller runs `keep_alive` at least once in each heartbeat interval.
"""

import time
import uuid
from collections.abc import Callable

from broker.client import Client, raise_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from protocol.primitives import Uuid, uuid_to_text

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
PURPOSE = "share-group"
REJOIN_ERRORS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})

Assignment = frozenset[tuple[Uuid, int]]
"""Partitions as (topic id, partition)."""


class ShareMembership:
    """The membership of this consumer in one share group, with a subscription to one topic."""

    def __init__(self, client: Client, group: str, topic: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.group = group
        self.member_id = uuid_to_text(Uuid(uuid.uuid4().bytes))
        self.assignment: Assignment = frozenset()
        self._client = client
        self._topic = topic
        self._monotonic = monotonic
        self._epoch = JOINING_EPOCH
        self._due = 0.0

    def keep_alive(self) -> None:
        """Send a heartbeat when one is due, the first one to join. Raises KafkaError or ClientError."""
        if self._monotonic() < self._due:
            return
        try:
            answer = self._client.retrying(self._heartbeat)
        except KafkaError as error:
            if error.code not in REJOIN_ERRORS:
                raise
            self._epoch = JOINING_EPOCH
            answer = self._client.retrying(self._heartbeat)
        self._epoch = answer.member_epoch
        self._due = self._monotonic() + answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            self.assignment = frozenset(
                (topic.topic_id, partition)
                for topic in answer.assignment.topic_partitions
                for partition in topic.partitions
            )

    def leave(self) -> None:
        """Leave the group. Raises KafkaError or ClientError."""
        self._epoch = LEAVING_EPOCH
        self._heartbeat()

    def _heartbeat(self) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=[self._topic] if self._epoch == JOINING_EPOCH else None,
        )
        answer = self._client.coordinator(self.group, purpose=PURPOSE).call(request, ShareGroupHeartbeatResponse)
        raise_for(answer.error_code, f"share group {self.group!r}", answer.error_message)
        return answer
