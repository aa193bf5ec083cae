"""The remote part of a partition for DescribeNode."""

import asyncio
import heapq
from collections.abc import Sequence
from typing import Final

from broker.node.remote import RemoteStoragePart
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.describe_node import DescribedPartition, DescribedSegment
from storage.tiered.errors import RemoteMetadataNotReady
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, TopicIdPartition

_ROWS_PER_TURN: Final = 2_000


@lazy_dataclass(slots=True)
class _RemoteTotals:
    """The finished segments of a partition, and the newest of all."""

    size_bytes: int = 0
    count: int = 0
    first_offset: int = -1
    last_offset: int = -1
    newest: Sequence[RemoteSegment] = ()


async def add_remote_part(
    described: DescribedPartition, remote: RemoteStoragePart, id: TopicIdPartition, segments_max: int
) -> None:
    """Add the segments and the copy lag of a led partition; the segments only once their metadata are loaded."""
    read_lag = remote.manager.metrics.topic(id.topic).copy_lags.get(id.partition)
    if read_lag is not None:
        described.copy_lag_bytes, described.copy_lag_segments = read_lag()
    try:
        totals = await _remote_totals(remote, id, segments_max)
    except RemoteMetadataNotReady:
        return
    described.remote_size_bytes, described.remote_segments = totals.size_bytes, totals.count
    described.remote_first_offset, described.remote_last_offset = totals.first_offset, totals.last_offset
    described.segments = [
        DescribedSegment(
            each.start_offset, each.end_offset, each.size_bytes, each.max_timestamp_ms, each.state.name.lower()
        )
        for each in totals.newest
    ]


async def _remote_totals(remote: RemoteStoragePart, id: TopicIdPartition, segments_max: int) -> _RemoteTotals:
    """Add up the segments of a partition in turns of the loop. Raise RemoteMetadataNotReady."""
    totals, row = _RemoteTotals(), 0
    newest: list[tuple[int, int, RemoteSegment]] = []
    while True:
        page = remote.metadata.known(id).page(row, _ROWS_PER_TURN)
        for number, segment in page.segments:
            if segment.is_given_up_mark:
                continue
            entry = (segment.start_offset, number, segment)
            if len(newest) < segments_max:
                heapq.heappush(newest, entry)
            elif segments_max:
                heapq.heappushpop(newest, entry)
            if segment.state is SegmentState.COPY_FINISHED:
                totals.size_bytes += segment.size_bytes
                totals.count += 1
                totals.last_offset = max(totals.last_offset, segment.end_offset)
                first = totals.first_offset
                totals.first_offset = segment.start_offset if first < 0 else min(first, segment.start_offset)
        if page.next_row is None:
            totals.newest = [segment for _, _, segment in sorted(newest, reverse=True)]
            return totals
        row = page.next_row
        await asyncio.sleep(0)
