"""A member of a share group that holds records, over raw requests: client libraries have no share consumer yet."""

import time
from functools import partial
from typing import Final

from broker.client import Client, raise_for
from protocol.messages import share_fetch as fetching
from protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

RELEASE: Final = 2
_LIMIT_S: Final = 60.0


class ShareMember:
    """A member of `group` for partition 0 of a topic."""

    def __init__(self, client: Client, group: str, topic: str) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._topic_id = client.metadata([topic]).topics[0].topic_id
        self._epoch = 0

    def join(self) -> None:
        """Send heartbeats until the partition is assigned."""
        deadline, epoch, topics = time.monotonic() + _LIMIT_S, 0, [self._topic]
        while True:
            request = ShareGroupHeartbeatRequest(self._group, "member", epoch, None, topics or None)
            response = self._client.retrying(partial(self._beat, request))
            raise_for(response.error_code, self._group, response.error_message)
            if response.assignment is not None and response.assignment.topic_partitions:
                return
            assert time.monotonic() < deadline, "no share partition was assigned"
            epoch, topics = response.member_epoch, []
            time.sleep(0.1)

    def _beat(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        return self._client.coordinator(self._group).call(request, ShareGroupHeartbeatResponse)

    def acquire(self, count: int, *released: tuple[int, int]) -> list[tuple[int, int, int]]:
        """Release ranges of offsets and acquire records: (first offset, last offset, delivery count)."""
        leader = self._client.leaders([self._topic])[self._topic].partitions[0].leader_id
        connection = self._client.node(leader, "share")
        batches = [fetching.AcknowledgementBatch(first, last, [RELEASE]) for first, last in released]
        request = ShareFetchRequest(
            self._group,
            "member",
            self._epoch,
            max_wait_ms=10_000,
            min_bytes=1,
            max_records=count,
            batch_size=count,
            topics=[fetching.FetchTopic(self._topic_id, [fetching.FetchPartition(0, acknowledgement_batches=batches)])],
        )
        self._epoch += 1
        response = connection.call(request, ShareFetchResponse)
        raise_for(response.error_code, self._group, response.error_message)
        return [
            (each.first_offset, each.last_offset, each.delivery_count)
            for topic in response.responses
            for partition in topic.partitions
            for each in partition.acquired_records
        ]
