"""AlterReplicaLogDirs (key 34), versions 1-2: choose the log directory of a replica (KIP-113).

A replica that this broker does not host yet will be created in the chosen directory. The response is still
REPLICA_NOT_AVAILABLE, as in Kafka, whose tools rely on it. A replica in another directory stays there: moves between
directories are not supported, and the response says POLICY_VIOLATION, because it has no text.
"""

from typing import Final

from broker.api.serving.context import RequestContext
from broker.logs import EventLog
from broker.runtime.partitions.registry import Partitions
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from storage.directories.checkpoints import TopicPartition
from storage.directories.log_dir import LogDir
from storage.directories.log_dirs import LogDirs

_log: Final = EventLog("broker.logs")


class AlterReplicaLogDirsHandler:
    """Answers AlterReplicaLogDirs."""

    def __init__(self, partitions: Partitions, log_dirs: LogDirs) -> None:
        self._partitions = partitions
        self._log_dirs = log_dirs

    def __call__(self, request: AlterReplicaLogDirsRequest, context: RequestContext) -> AlterReplicaLogDirsResponse:
        results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        for wanted in request.dirs:
            directory = self._directory(wanted.path)
            for topic in wanted.topics:
                answers = results.setdefault(topic.name, [])
                for index in topic.partitions:
                    outcome = self._outcome(TopicPartition(topic.name, index), directory)
                    answers.append(AlterReplicaLogDirPartitionResult(index, outcome))
        return AlterReplicaLogDirsResponse(
            results=[AlterReplicaLogDirTopicResult(name, answers) for name, answers in results.items()]
        )

    def _directory(self, path: str) -> LogDir | None:
        path = path.rstrip("/") or "/"
        return next((directory for directory in self._log_dirs.directories if directory.path == path), None)

    def _outcome(self, partition: TopicPartition, directory: LogDir | None) -> ErrorCode:
        if directory is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if not directory.is_online:
            return ErrorCode.KAFKA_STORAGE_ERROR
        try:
            self._partitions.hosted(*partition)
        except KafkaError as error:
            return self._outcome_elsewhere(partition, directory, error.code)
        home = self._log_dirs.directory_of(partition)
        if home is directory:
            return ErrorCode.NONE
        _log.warning(
            "replica is not moved: moves between log directories are not supported",
            partition=partition,
            to=directory.path,
        )
        return ErrorCode.POLICY_VIOLATION

    def _outcome_elsewhere(self, partition: TopicPartition, directory: LogDir, absence: ErrorCode) -> ErrorCode:
        """Return the outcome for a replica that is not in service here."""
        if absence is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return absence
        self._log_dirs.prefer(partition, directory)
        return ErrorCode.REPLICA_NOT_AVAILABLE
