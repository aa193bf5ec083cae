"""DescribeLogDirs (key 35), versions 1-4: log directories, their replicas, and the space of their volumes.

3+ top-level error; 4+ sizes of the volume (KIP-827). Partitions without a replica here are left out.
"""

from collections import defaultdict
from functools import partial

from broker.api.serving.context import RequestContext
from broker.runtime.loop.runtime import Runtime
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from storage.directories.log_dir import LogDir
from storage.directories.log_dirs import LogDirs
from storage.files import DiskSpace
from storage.log import Log


class DescribeLogDirsHandler:
    """Answers DescribeLogDirs. The IO thread asks for the volume's space, because a network file system may be slow."""

    def __init__(self, log_dirs: LogDirs, runtime: Runtime) -> None:
        self._log_dirs = log_dirs
        self._files = runtime.files
        self._io = runtime.io

    async def __call__(self, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
        wanted = None if request.topics is None else {t.topic: frozenset(t.partitions) for t in request.topics}
        return DescribeLogDirsResponse(results=[await self._describe(d, wanted) for d in self._log_dirs.directories])

    async def _describe(self, directory: LogDir, wanted: dict[str, frozenset[int]] | None) -> DescribeLogDirsResult:
        space = await self._space_of(directory)
        if space is None or not directory.is_online:
            return DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, directory.path)
        logs = [log for log in self._log_dirs.logs_in(directory) if _is_wanted(log, wanted)]
        return DescribeLogDirsResult(
            ErrorCode.NONE, directory.path, _topics(logs), space.total_bytes, space.usable_bytes
        )

    async def _space_of(self, directory: LogDir) -> DiskSpace | None:
        if not directory.is_online:
            return None
        try:
            return await self._io.submit(partial(self._files.disk_space, directory.path))
        except OSError as error:
            self._log_dirs.fail(directory, error)
            return None


def _is_wanted(log: Log, wanted: dict[str, frozenset[int]] | None) -> bool:
    return wanted is None or log.partition in wanted.get(log.topic, ())


def _topics(logs: list[Log]) -> list[DescribeLogDirsTopic]:
    """Group logs by topic. A replica's lag is the distance from its end to the high watermark, after a loss of data."""
    topics: defaultdict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for log in sorted(logs, key=lambda log: (log.topic, log.partition)):
        lag = max(0, log.high_watermark - log.log_end_offset)
        topics[log.topic].append(DescribeLogDirsPartition(log.partition, log.size_bytes, lag))
    return [DescribeLogDirsTopic(name, partitions) for name, partitions in topics.items()]
