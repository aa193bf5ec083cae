"""DeleteRecords (key 21), versions 0-2: delete all records below an offset.

The leader raises its log start offset. The response waits until every live replica has done the same (the low
watermark). The next run of retention deletes the files.
"""

from collections.abc import Awaitable
from functools import partial
from typing import Final

from broker.api.pipeline.permission import DELETE_TOPIC
from broker.api.serving.context import RequestContext
from broker.metadata.image.topic_names import CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC, is_internal
from broker.runtime.loop.runtime import Runtime
from broker.runtime.loop.waiters import Deadline, Deadlines, Loop, OffsetWaiter
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.registry import Partitions
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

NO_LOW_WATERMARK = -1

_PRUNED_BY_BROKERS: Final = frozenset({CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC})
"""Logs that brokers trim themselves: by snapshots (KIP-630), and by pruning remote metadata."""


class DeleteRecordsHandler:
    """Answers DeleteRecords."""

    def __init__(self, partitions: Partitions, runtime: Runtime) -> None:
        self._partitions = partitions
        self._deadlines = runtime.deadlines
        self._loop = runtime.loop

    def __call__(
        self, request: DeleteRecordsRequest, context: RequestContext
    ) -> DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]:
        waiting: list[_Trimming] = []
        response = DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    topic.name,
                    [self._delete(topic.name, p, waiting) for p in topic.partitions]
                    if context.allows(DELETE_TOPIC, topic.name)
                    else [_unauthorized(p) for p in topic.partitions],
                )
                for topic in request.topics
            ]
        )
        if not waiting:
            return response
        pending = _PendingDelete(response, waiting, self._loop)
        pending.start(self._deadlines, request.timeout_ms)
        return pending.future

    def _delete(
        self, topic: str, asked: DeleteRecordsPartition, waiting: "list[_Trimming]"
    ) -> DeleteRecordsPartitionResult:
        entry = DeleteRecordsPartitionResult(asked.partition_index, NO_LOW_WATERMARK)
        try:
            if topic in _PRUNED_BY_BROKERS:
                raise KafkaError(ErrorCode.POLICY_VIOLATION)
            if is_internal(topic) and self._partitions.image.topics.by_name(topic) is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            partition = self._partitions.hosted(topic, asked.partition_index)
            target = partition.record_deletion.delete_records(asked.offset)
            low_watermark = partition.low_watermark()
        except KafkaError as error:
            entry.error_code = error.code
            return entry
        if low_watermark >= target:
            entry.low_watermark = low_watermark
        else:
            waiting.append(_Trimming(partition, target, entry))
        return entry


def _unauthorized(asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(asked.partition_index, NO_LOW_WATERMARK, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class _Trimming:
    """One partition whose replicas have not yet reached `target`."""

    __slots__ = ("entry", "partition", "target", "waiter")

    def __init__(self, partition: Partition, target: int, entry: DeleteRecordsPartitionResult) -> None:
        self.partition = partition
        self.target = target
        self.entry = entry
        self.waiter: OffsetWaiter | None = None


class _PendingDelete:
    """A request that waits for replicas, or for its timeout."""

    def __init__(self, response: DeleteRecordsResponse, waiting: list[_Trimming], loop: Loop) -> None:
        self._response = response
        self._waiting = dict.fromkeys(waiting)
        self._deadline: Deadline | None = None
        self.future = loop.create_future()

    def start(self, deadlines: Deadlines, timeout_ms: int) -> None:
        self._deadline = deadlines.after_ms(timeout_ms, self._expire)
        for one in tuple(self._waiting):
            one.waiter = one.partition.record_deletion.when_deleted(one.target, partial(self._settle, one))

    def _settle(self, one: _Trimming, error: ErrorCode) -> None:
        del self._waiting[one]
        if error:
            one.entry.error_code = error
        else:
            one.entry.low_watermark = one.partition.low_watermark()
        if not self._waiting:
            self._finish()

    def _expire(self) -> None:
        for one in self._waiting:
            assert one.waiter is not None
            one.waiter.cancel()
            one.entry.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._waiting.clear()
        self._finish()

    def _finish(self) -> None:
        assert self._deadline is not None
        self._deadline.cancel()
        if not self.future.done():  # the peer is gone
            self.future.set_result(self._response)
