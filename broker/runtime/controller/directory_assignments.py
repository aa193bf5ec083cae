"""Reports of the log directory of each replica to the controller, by AssignReplicasToDirs (KIP-858).

A replica on a broker with several log directories is unassigned until the broker has chosen one. The controller can
take a replica out of the in-sync set after a directory failure only if it knows the assignment. Assignments are
batched.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from broker.logs import EventLog
from broker.runtime.controller.broker_lifecycle import RegisteredBroker
from broker.runtime.controller.controller_router import ControllerUnavailable
from broker.runtime.controller.metadata_cache import ImageSource
from broker.runtime.loop.waiters import Loop
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)
from protocol.primitives import Uuid

MAX_ASSIGNMENTS_PER_REQUEST: Final = 2_250
GATHER_MS: Final = 10
FIRST_RETRY_MS: Final = 100
LAST_RETRY_MS: Final = 10_000

_log: Final = EventLog("broker.directories")


class HostedReplica(Protocol):
    """A partition that this broker hosts."""

    @property
    def topic(self) -> str: ...

    @property
    def topic_id(self) -> Uuid: ...

    @property
    def index(self) -> int: ...


class AssignmentChannel(Protocol):
    """AssignReplicasToDirs requests to the active controller. Raises KafkaError, ControllerUnavailable."""

    def assign_directories(self, request: AssignReplicasToDirsRequest) -> Awaitable[AssignReplicasToDirsResponse]: ...


class DirectoryAssignments:
    """Reports replicas of this broker whose log directory differs from the registered one.

    `directory_of(topic, index)` returns the id of the directory that holds a log, None without a log. At most one
    request is in flight; a failed request is sent again after a growing pause.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        channel: AssignmentChannel,
        metadata: ImageSource,
        broker: RegisteredBroker,
        directory_of: Callable[[str, int], Uuid | None],
        loop: Loop,
    ) -> None:
        self._broker_id = broker_id
        self._channel = channel
        self._metadata = metadata
        self._broker = broker
        self._directory_of = directory_of
        self._loop = loop
        self._pending: dict[tuple[Uuid, int], Uuid] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._retry_ms = FIRST_RETRY_MS
        self._sending: asyncio.Future[AssignReplicasToDirsResponse] | None = None

    def on_hosted(self, partition: HostedReplica) -> None:
        """Report the directory of a newly hosted partition if it differs from the registered one."""
        directory = self._directory_of(partition.topic, partition.index)
        registration = self._metadata.image.topics.partition(partition.topic_id, partition.index)
        if directory is None or registration is None or self._broker_id not in registration.replicas:
            return
        if registration.directory_of(self._broker_id) != directory:
            self._pending[partition.topic_id, partition.index] = directory
            self._send_in(GATHER_MS)

    def close(self) -> None:
        """Stop sending."""
        self._pending.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()

    def _send_in(self, milliseconds: int) -> None:
        if self._timer is None and self._sending is None:
            self._timer = self._loop.call_at(self._loop.time() + milliseconds / 1000, self._send)

    def _send(self) -> None:
        self._timer = None
        sent = dict(list(self._pending.items())[:MAX_ASSIGNMENTS_PER_REQUEST])
        if not sent:
            return
        request = _request(self._broker_id, self._broker.epoch, sent)
        try:
            self._sending = asyncio.ensure_future(self._channel.assign_directories(request))
        except KafkaError as error:
            self._back_off(error)
            return
        self._sending.add_done_callback(lambda done: self._answered(sent, done))

    def _answered(
        self, sent: dict[tuple[Uuid, int], Uuid], done: "asyncio.Future[AssignReplicasToDirsResponse]"
    ) -> None:
        self._sending = None
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, (KafkaError, ControllerUnavailable)):
            self._back_off(error)
            return
        self._retry_ms = FIRST_RETRY_MS
        for key in sent:  # errors are final: the topic is deleted, or this broker is not a replica any more
            if self._pending.get(key) == sent[key]:
                del self._pending[key]
        _report(done.result())
        if self._pending:
            self._send_in(GATHER_MS)

    def _back_off(self, error: KafkaError | ControllerUnavailable) -> None:
        _log.info("Directory assignments are sent again later", reason=str(error), in_ms=self._retry_ms)
        self._send_in(self._retry_ms)
        self._retry_ms = min(2 * self._retry_ms, LAST_RETRY_MS)


def _request(
    broker_id: BrokerId, epoch: BrokerEpoch, assignments: dict[tuple[Uuid, int], Uuid]
) -> AssignReplicasToDirsRequest:
    by_directory: dict[Uuid, dict[Uuid, list[int]]] = {}
    for (topic_id, index), directory in assignments.items():
        by_directory.setdefault(directory, {}).setdefault(topic_id, []).append(index)
    return AssignReplicasToDirsRequest(
        broker_id,
        epoch,
        [
            AssignReplicasToDirsRequestDirectoryData(
                directory,
                [
                    AssignReplicasToDirsRequestTopicData(
                        topic_id, [AssignReplicasToDirsRequestPartitionData(index) for index in indexes]
                    )
                    for topic_id, indexes in topics.items()
                ],
            )
            for directory, topics in by_directory.items()
        ],
    )


def _report(response: AssignReplicasToDirsResponse) -> None:
    for directory in response.directories:
        for topic in directory.topics:
            for partition in topic.partitions:
                if partition.error_code != ErrorCode.NONE:
                    _log.warning(
                        "The controller rejected a directory assignment",
                        partition=partition.partition_index,
                        reason=ErrorCode(partition.error_code).name,
                    )
