"""The state of this node for DescribeNode: load, disks, and the partitions that it leads. Computed only when asked."""

import asyncio
import resource
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.build_form import release
from broker.config.broker_config import BrokerConfig
from broker.coordination.share_partition_key import SharePartitionKey
from broker.metrics.loop_lag import LoopLag
from broker.net.server import Server
from broker.node.description.health_part import add_health
from broker.node.metadata import MetadataPart
from broker.node.runtime import NodeRuntime
from broker.runtime.partitions.partition import Partition
from broker.share.records import RecordState
from protocol.messages.describe_node import (
    DescribedLogDir,
    DescribedPartition,
    DescribedTraffic,
    DescribeNodeRequest,
    DescribeNodeResponse,
)
from storage.directories.log_dir import LogDir

if TYPE_CHECKING:
    from broker.node.data import DataPart
    from broker.node.remote import RemoteStoragePart

PARTITIONS_MAX: Final = 2_000
SEGMENTS_MAX: Final = 500
TOPICS_MAX: Final = 500
PER_TURN: Final = 200
"""Partitions, or logs, that a turn of the event loop looks at."""
_PAGE_BYTES: Final = resource.getpagesize()


class NodeStatus:
    """Answers DescribeNode; `serve` adds what the broker role has."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: NodeRuntime,
        servers: Sequence[Server],
        metadata: MetadataPart,
        lag: LoopLag,
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._servers = servers
        self._metadata = metadata
        self._lag = lag
        self._data: DataPart | None = None
        self._remote: RemoteStoragePart | None = None
        self._began_ms = runtime.clock.monotonic_ms()

    def serve(self, data: "DataPart", remote: "RemoteStoragePart | None") -> None:
        """Describe the logs of the broker role from now on; `remote` is None without remote storage."""
        self._data = data
        self._remote = remote

    async def describe(self, request: DescribeNodeRequest) -> DescribeNodeResponse:
        """Return the load, and the parts of the state that `request` names."""
        response = self._load()
        ids = await self._runtime.io.submit(self._metadata.quorum.log.snapshots.ids)
        if request.include_health:
            await add_health(response, self._metadata.config.get(), self._runtime.tls)
        if ids:
            response.snapshot_end_offset, response.snapshot_epoch = ids[-1].end_offset, ids[-1].epoch
        if self._data is not None:
            self._add_traffic(response, self._data, min(max(request.max_topics, 0), TOPICS_MAX))
            if request.include_log_dirs:
                response.log_dirs = [await self._log_dir(self._data, each) for each in self._data.log_dirs.directories]
            segments_max = min(max(request.max_segments, 0), SEGMENTS_MAX)
            for number, each in enumerate(self._wanted(self._data, request)):
                response.partitions.append(await self._partition(each, segments_max))
                if number % PER_TURN == PER_TURN - 1:
                    await asyncio.sleep(0)
            if request.share_group is not None:
                self._add_deliveries(self._data, request.share_group, response.partitions)
        return response

    def _load(self) -> DescribeNodeResponse:
        clock, stats = self._runtime.clock, [each for server in self._servers for each in server.stats.values()]
        return DescribeNodeResponse(
            node_id=self._config.node_id,
            release=release(),
            time_ms=clock.now_ms(),
            uptime_ms=int(clock.monotonic_ms() - self._began_ms),
            cpu_ms=int(time.process_time() * 1000),
            memory_bytes=_resident_bytes(),
            connections=sum(each.connections for each in stats),
            loop_lag_micros=int(self._lag.seconds * 1e6),
            requests=sum(each.requests for each in stats),
            unclean_elections=self._metadata.driver.metrics.unclean_elections,
        )

    def _add_traffic(self, response: DescribeNodeResponse, data: "DataPart", topics_max: int) -> None:
        total = data.partitions.traffic.total
        response.bytes_in, response.bytes_out = total("bytes_in"), total("bytes_out")
        response.messages_in = total("messages_in")
        response.traffic = [
            DescribedTraffic(name, meters.bytes_in, meters.bytes_out, meters.messages_in)
            for name, meters in data.partitions.traffic.busiest(topics_max)
        ]
        figures = data.partitions.roles.figures
        response.isr_shrinks, response.isr_expands = figures.isr_shrinks, figures.isr_expands
        response.remote_fetch_bytes = total("remote_fetch_bytes")
        response.remote_fetch_errors = total("remote_fetch_errors")
        if self._remote is not None:
            copies = self._remote.manager.metrics
            lag = copies.copy_lag
            response.has_remote_storage = True
            response.remote_copy_bytes = copies.total("copy_bytes")
            response.remote_copy_errors = copies.total("copy_errors")
            response.remote_copy_lag_bytes, response.remote_copy_lag_segments = lag

    async def _log_dir(self, data: "DataPart", directory: LogDir) -> DescribedLogDir:
        if not directory.is_online:
            return DescribedLogDir(directory.path, str(directory.failure))
        try:
            space = await self._runtime.io.submit(partial(self._runtime.files.disk_space, directory.path))
        except OSError as error:
            return DescribedLogDir(directory.path, error.strerror or str(error))
        logs, size = data.log_dirs.logs_in(directory), 0
        for begin in range(0, len(logs), PER_TURN):
            size += sum(log.size_bytes for log in logs[begin : begin + PER_TURN])
            await asyncio.sleep(0)
        return DescribedLogDir(directory.path, None, space.total_bytes, space.usable_bytes, size)

    def _wanted(self, data: "DataPart", request: DescribeNodeRequest) -> Iterator[Partition]:
        """Yield the led partitions among those of the request, at most `PARTITIONS_MAX`."""
        left = PARTITIONS_MAX
        for topic in request.topics:
            hosted = data.partitions.by_name.get(topic.name)
            for index in topic.partitions:
                partition = None if hosted is None else hosted.partitions.get(index)
                if partition is None or not partition.is_leader:
                    continue
                if left == 0:
                    return
                left -= 1
                yield partition

    async def _partition(self, partition: Partition, segments_max: int) -> DescribedPartition:
        log = partition.log
        described = DescribedPartition(
            partition.topic,
            partition.index,
            log.log_start_offset,
            log.local_log_start_offset,
            log.high_watermark,
            log.log_end_offset,
            log.size_bytes,
        )
        if self._remote is not None and log.config.remote_storage_enable:
            # Local import: a node without remote storage does not load it.
            from broker.node.description.remote_part import add_remote_part
            from storage.tiered.segment_metadata import TopicIdPartition

            described.is_tiered = True
            id = TopicIdPartition(partition.topic_id, partition.topic, partition.index)
            await add_remote_part(described, self._remote, id, segments_max)
        return described

    def _add_deliveries(self, data: "DataPart", group: str, partitions: Sequence[DescribedPartition]) -> None:
        """Add the records in delivery to a share group, where this node serves the group."""
        for described in partitions:
            hosted = data.partitions.by_name.get(described.topic_name)
            if hosted is None:
                continue
            found = data.shares.partitions.find(SharePartitionKey(group, hosted.id, described.index))
            if found is None or found.state is None:
                continue
            runs = list(found.state.runs)
            described.in_flight_records = sum(run.last - run.first + 1 for run in runs)
            described.acquired_records = sum(
                run.last - run.first + 1 for run in runs if run.state is RecordState.ACQUIRED
            )
            described.max_delivery_count = max((run.delivery_count for run in runs), default=0)


def _resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
