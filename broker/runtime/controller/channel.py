"""Requests of this broker to the active controller, as the messages that travel between nodes (KIP-631).

`LocalControllerChannel` reaches the controller in this process, `ControllerChannel` the active one. Both raise
KafkaError for an error code.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from broker.metadata.controller.controller import Controller
from broker.metadata.controller.result import ControllerResult
from broker.net.peer import VersionMismatch
from broker.runtime.controller.controller_router import ControllerRouter, ControllerUnavailable, RemoteController
from broker.runtime.controller.driver import Command, ControllerDriver
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages import Message
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from protocol.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

__all__ = [
    "ChannelTimes",
    "ControllerChannel",
    "ControllerUnavailable",
    "LocalControllerChannel",
    "allocate_producer_ids",
]


class _Refusable(Message, Protocol):
    error_code: int


Q = TypeVar("Q", bound=Message)
F = TypeVar("F", bound=_Refusable)

# Older versions omit features whose lowest level is 0; the controller then refuses the broker (KIP-584).
_REGISTRATION_VERSIONS = (4, 4)
# Version 3 carries broker epochs, which keep a replica's previous incarnation out of the in-sync set (KIP-903).
_ALTER_PARTITION_VERSIONS = (3, 3)


@lazy_dataclass(frozen=True, slots=True)
class ChannelTimes:
    """Timeouts in ms: broker.heartbeat.interval.ms, broker.session.timeout.ms, controller.socket.timeout.ms."""

    heartbeat_interval_ms: int = 2_000
    session_timeout_ms: int = 9_000
    request_timeout_ms: int = 30_000


DEFAULT_TIMES: Final = ChannelTimes()


class LocalControllerChannel:
    """Commands to the controller in this process, active or not."""

    def __init__(self, driver: ControllerDriver) -> None:
        self._driver = driver

    def register_broker(self, request: BrokerRegistrationRequest) -> "asyncio.Future[BrokerRegistrationResponse]":
        return self._driver.submit(lambda controller, now: controller.register_broker(request, now_ms=now))

    def heartbeat(self, request: BrokerHeartbeatRequest) -> "asyncio.Future[BrokerHeartbeatResponse]":
        return self._driver.submit(lambda controller, now: controller.heartbeat(request, now_ms=now))

    def register_controller(
        self, request: ControllerRegistrationRequest
    ) -> "asyncio.Future[ControllerRegistrationResponse]":
        return self._driver.submit(lambda controller, _now: controller.register_controller(request))

    def assign_directories(
        self, request: AssignReplicasToDirsRequest
    ) -> "asyncio.Future[AssignReplicasToDirsResponse]":
        return self._driver.submit(lambda controller, _now: controller.assign_directories(request))

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> "asyncio.Future[AllocateProducerIdsResponse]":
        return self._driver.submit(allocate_producer_ids(request))

    def alter_partitions(self, request: AlterPartitionRequest) -> "asyncio.Future[AlterPartitionResponse]":
        return self._driver.submit(lambda controller, _now: controller.alter_partitions(request))

    def create_topics(self, request: CreateTopicsRequest) -> "asyncio.Future[CreateTopicsResponse]":
        return self._driver.submit(lambda controller, _now: controller.create_topics(request))


class ControllerChannel:
    """Requests to the active controller. Methods raise KafkaError, and ControllerUnavailable without a timely response.

    Heartbeats and registrations are retried for half a session, as in Kafka; later the caller builds a new request.
    """

    def __init__(self, driver: ControllerDriver, router: ControllerRouter, times: ChannelTimes = DEFAULT_TIMES) -> None:
        self._local = LocalControllerChannel(driver)
        self._router = router
        self._times = times

    async def register_broker(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        return await self._send_within_session(
            self._local.register_broker, request, BrokerRegistrationResponse, versions=_REGISTRATION_VERSIONS
        )

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        return await self._send_within_session(self._local.heartbeat, request, BrokerHeartbeatResponse)

    async def register_controller(self, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
        return await self._send_within_session(self._local.register_controller, request, ControllerRegistrationResponse)

    async def assign_directories(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        return await self._send_within_request_timeout(
            self._local.assign_directories, request, AssignReplicasToDirsResponse
        )

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        return await self._send_within_request_timeout(
            self._local.allocate_producer_ids, request, AllocateProducerIdsResponse
        )

    async def alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return await self._send_within_request_timeout(
            self._local.alter_partitions, request, AlterPartitionResponse, versions=_ALTER_PARTITION_VERSIONS
        )

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Send CreateTopics; errors of single topics are in the response."""

        async def there(remote: RemoteController) -> CreateTopicsResponse:
            try:
                response = await remote.send(request, CreateTopicsResponse)
            except VersionMismatch as error:
                raise _unsupported(error) from error
            if any(topic.error_code == ErrorCode.NOT_CONTROLLER for topic in response.topics):
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            return response

        within_ms = self._times.request_timeout_ms
        return await self._router.run(
            lambda: self._local.create_topics(request), there, within_ms=within_ms, attempt_ms=within_ms
        )

    async def _send_within_session(
        self,
        here: Callable[[Q], Awaitable[F]],
        request: Q,
        answer: type[F],
        *,
        versions: tuple[int, int] | None = None,
    ) -> F:
        """Send a request that keeps this node a member of the cluster."""
        return await self._router.run(
            *_local_and_remote(here, request, answer, versions),
            within_ms=self._times.session_timeout_ms / 2,
            attempt_ms=self._times.heartbeat_interval_ms,
        )

    async def _send_within_request_timeout(
        self,
        here: Callable[[Q], Awaitable[F]],
        request: Q,
        answer: type[F],
        *,
        versions: tuple[int, int] | None = None,
    ) -> F:
        """Send a request that may take the whole request timeout."""
        within_ms = self._times.request_timeout_ms
        return await self._router.run(
            *_local_and_remote(here, request, answer, versions), within_ms=within_ms, attempt_ms=within_ms
        )


def _local_and_remote(
    here: Callable[[Q], Awaitable[F]], request: Q, answer: type[F], versions: tuple[int, int] | None
) -> tuple[Callable[[], Awaitable[F]], Callable[[RemoteController], Awaitable[F]]]:
    """Return how to execute a request on the controller in this process and on a remote one."""

    async def locally() -> F:
        return _checked(await here(request))

    async def remotely(remote: RemoteController) -> F:
        try:
            return _checked(await remote.send(request, answer, versions=versions))
        except VersionMismatch as error:
            raise _unsupported(error) from error

    return locally, remotely


def _unsupported(error: VersionMismatch) -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error))


def _checked(response: F) -> F:
    """Return the response. Raises KafkaError for an error code of the whole request."""
    if response.error_code:
        known = response.error_code in ErrorCode._value2member_map_
        raise KafkaError(ErrorCode(response.error_code) if known else ErrorCode.UNKNOWN_SERVER_ERROR)
    return response


def allocate_producer_ids(request: AllocateProducerIdsRequest) -> Command[AllocateProducerIdsResponse]:
    """Return the command of AllocateProducerIds, which converts the controller's block to the response."""

    def allocate(controller: Controller, _now: int) -> ControllerResult[AllocateProducerIdsResponse]:
        granted = controller.allocate_producer_ids(BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch))
        first, size = granted.response
        return ControllerResult(
            granted.records, AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=size)
        )

    return allocate
