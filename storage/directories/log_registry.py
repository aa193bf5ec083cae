"""The open logs of a node, by partition, and the log directory of each."""

from collections.abc import Iterator

from storage.directories.checkpoints import TopicPartition
from storage.directories.log_dir import LogDir
from storage.log import Log


def partition_of(log: Log) -> TopicPartition:
    return TopicPartition(log.topic, log.partition)


class LogRegistry:
    """A mapping that only the thread that owns the logs changes."""

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, Log] = {}
        self._directories: dict[TopicPartition, LogDir] = {}

    def __iter__(self) -> Iterator[Log]:
        """Iterate over a copy of the registry."""
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, partition: TopicPartition) -> Log | None:
        return self._logs.get(partition)

    def directory_of(self, partition: TopicPartition) -> LogDir | None:
        """Return the directory that holds the log of a partition."""
        return self._directories.get(partition)

    def logs_in(self, directory: LogDir) -> list[Log]:
        return [self._logs[partition] for partition, at in list(self._directories.items()) if at is directory]

    def add(self, log: Log, directory: LogDir) -> None:
        partition = partition_of(log)
        self._logs[partition] = log
        self._directories[partition] = directory
        directory.log_count += 1

    def remove(self, partition: TopicPartition) -> tuple[Log, LogDir] | None:
        """Remove the log of a partition; return the log and its directory, None without such a log."""
        log, directory = self._logs.pop(partition, None), self._directories.pop(partition, None)
        if log is None or directory is None:
            return None
        directory.log_count -= 1
        return log, directory

    def remove_all(self, directory: LogDir) -> list[Log]:
        """Remove the logs of a directory and return them."""
        logs = self.logs_in(directory)
        for log in logs:
            del self._logs[partition_of(log)]
            del self._directories[partition_of(log)]
        directory.log_count = 0
        return logs
