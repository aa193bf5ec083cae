"""WriteTxnMarkers (key 27), versions 1-2: the transaction coordinator ends transactions on partitions (KIP-98).

2 carries the transaction version: from transaction version 2 on, a marker raises the producer's epoch (KIP-1228).

The coordinator retries partitions until each of them has its marker, so every partition has its own result. Markers for
`__consumer_offsets` go through the group coordinator, which makes the transaction's offsets visible or drops them.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from broker.api.serving.acknowledgements import Acknowledgements, AppendedBatch
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.group_coordinator import GROUP_METADATA_TOPIC, GroupCoordinator
from broker.runtime.loop.runtime import Runtime
from broker.runtime.partitions.log_tasks import Slices
from broker.runtime.partitions.partition import ACKS_ALL
from broker.runtime.partitions.registry import Partitions
from broker.runtime.partitions.transaction_marker import WritableMarker, append_marker
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

# The transaction coordinator retries NOT_LEADER_OR_FOLLOWER at the next leader, and knows no coordinator errors.
_GROUP_SHARD_AWAY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class WriteTxnMarkersHandler:
    """Answers WriteTxnMarkers. `timeout_ms` returns the limit of the wait for in-sync replicas."""

    def __init__(
        self, partitions: Partitions, groups: GroupCoordinator, runtime: Runtime, timeout_ms: Callable[[], int]
    ) -> None:
        self._partitions = partitions
        self._groups = groups
        self._runtime = runtime
        self._timeout_ms = timeout_ms

    async def __call__(self, request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
        return await self.write(request, context.effects_applied)

    async def write(
        self, request: WriteTxnMarkersRequest, on_applied: Callable[[], None] = lambda: None
    ) -> WriteTxnMarkersResponse:
        """Append all markers, then wait until the in-sync replicas have them. `on_applied` is called in between.

        A coordinator sends all markers that it owes a broker in one request, so the loop runs other work in between.
        """
        appends = self._begin()
        response, slices = WriteTxnMarkersResponse(), Slices(self._runtime.clock)
        for marker in request.markers:
            response.markers.append(appends.append(marker))
            await slices.pause()
        on_applied()
        return await self._completed(appends, response)

    def write_own(
        self, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse | Coroutine[Any, Any, WriteTxnMarkersResponse]:
        """Answer a request of this node itself: at once for one transaction whose markers are committed with the
        append, else as `write`.
        """
        if len(request.markers) != 1:
            return self.write(request)
        appends = self._begin()
        response = WriteTxnMarkersResponse([appends.append(request.markers[0])])
        return self._completed(appends, response) if appends.waiting or appends.ended else response

    def _begin(self) -> "_Appends":
        return _Appends(self._partitions, self._groups, self._runtime.clock.now_ms())

    async def _completed(self, appends: "_Appends", response: WriteTxnMarkersResponse) -> WriteTxnMarkersResponse:
        if appends.waiting:
            await self._acknowledged(appends.waiting)
        for entry, ended in appends.ended:
            try:
                await ended
            except KafkaError as error:
                entry.error_code = _group_error(error.code)
        return response

    async def _acknowledged(self, waiting: list[AppendedBatch[WritableTxnMarkerPartitionResult]]) -> None:
        pending = Acknowledgements(waiting, ACKS_ALL, self._runtime.loop, fail=_fail, answer=lambda: None)
        pending.start(self._runtime.deadlines, self._timeout_ms())
        await pending.future


class _Appends:
    """The markers of one request. Results in `waiting` and `ended` follow the commit of their markers."""

    def __init__(self, partitions: Partitions, groups: GroupCoordinator, now_ms: int) -> None:
        self._partitions = partitions
        self._groups = groups
        self._now_ms = now_ms
        self.waiting: list[AppendedBatch[WritableTxnMarkerPartitionResult]] = []
        self.ended: list[tuple[WritableTxnMarkerPartitionResult, Awaitable[None]]] = []

    def append(self, requested: WritableTxnMarker) -> WritableTxnMarkerResult:
        """Append one producer's marker to its partitions."""
        marker = WritableMarker(
            requested.producer_id,
            requested.producer_epoch,
            requested.transaction_result,
            requested.coordinator_epoch,
            requested.transaction_version,
        )
        topics = [
            WritableTxnMarkerTopicResult(
                topic.name, [self._append(topic.name, index, marker) for index in topic.partition_indexes]
            )
            for topic in requested.topics
        ]
        return WritableTxnMarkerResult(requested.producer_id, topics)

    def _append(self, topic: str, index: int, marker: WritableMarker) -> WritableTxnMarkerPartitionResult:
        entry = WritableTxnMarkerPartitionResult(index)
        try:
            partition = self._partitions.hosted(topic, index)
            if topic == GROUP_METADATA_TOPIC:
                self._end_in_group(index, marker, entry)
                return entry
            end = append_marker(partition, marker, self._now_ms).last_offset + 1
            outcome = partition.outcome(end, ACKS_ALL)
            if outcome is None:
                self.waiting.append(AppendedBatch(partition, end, entry))
            else:
                entry.error_code = outcome
        except KafkaError as error:
            entry.error_code = error.code
        return entry

    def _end_in_group(self, index: int, marker: WritableMarker, entry: WritableTxnMarkerPartitionResult) -> None:
        try:
            ended = self._groups.end_transaction(index, marker)
        except KafkaError as error:
            entry.error_code = _group_error(error.code)
        else:
            if ended is not None:
                self.ended.append((entry, ended))


def _fail(entry: WritableTxnMarkerPartitionResult, code: ErrorCode) -> None:
    entry.error_code = code


def _group_error(code: ErrorCode) -> ErrorCode:
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _GROUP_SHARD_AWAY else code
