"""The broker's membership in the cluster: register, catch up, become unfenced, send heartbeats, shut down (KIP-631).

The channel carries the same messages whether the active controller is local or remote. States and their order are
Kafka's: STARTING until the broker has read its own registration, RECOVERY until logs are recovered and the broker asks
to be unfenced, RUNNING once unfenced.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from enum import IntEnum
from typing import Final, Protocol

from broker.clock import Clock
from broker.logs import EventLog
from broker.metadata.image.cluster_image import BrokerRegistration, RegisteredEndpoint
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.features import VersionRange
from broker.metadata.image.metadata_image import MetadataImage
from broker.runtime.controller.controller_router import ControllerUnavailable
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from protocol.primitives import Uuid, uuid_to_text

STARTING_INTERVAL_MS: Final = 10
SHUTDOWN_RETRY_MS: Final = 50
FIRST_RETRY_MS: Final = 100
CONTROLLED_SHUTDOWN_LIMIT_MS: Final = 300_000
NO_EPOCH: Final = BrokerEpoch(-1)

_log: Final = EventLog("broker.lifecycle")


class BrokerState(IntEnum):
    """The states of a broker; the values are those of Kafka's metric BrokerState."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class RegistrationTimedOut(Exception):
    """No controller accepted the registration in time; the node must stop."""


class RegisteredBroker(Protocol):
    """A source of the epoch of this broker's registration, -1 before it is registered."""

    @property
    def epoch(self) -> BrokerEpoch: ...


class MembershipChannel(Protocol):
    """Requests to the active controller.

    Raises KafkaError for an error code, ControllerUnavailable without a response.
    """

    def register_broker(self, request: BrokerRegistrationRequest) -> Awaitable[BrokerRegistrationResponse]: ...

    def heartbeat(self, request: BrokerHeartbeatRequest) -> Awaitable[BrokerHeartbeatResponse]: ...


@lazy_dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The content of a broker's registration. Every process draws a new `incarnation_id`.

    `previous_epoch` is the broker epoch that a clean shutdown stored in the log directories, -1 after an unclean
    shutdown.
    """

    broker_id: BrokerId
    cluster_id: str
    incarnation_id: Uuid
    listeners: Mapping[str, RegisteredEndpoint]
    features: Mapping[str, VersionRange]
    directories: tuple[Uuid, ...]
    rack: str | None = None
    previous_epoch: BrokerEpoch = NO_EPOCH


class DirectoryFailureUnreported(Exception):
    """The controller did not learn of a failed log directory in time; the node must stop.

    The replicas in that directory would otherwise remain leaders and in-sync replicas.
    """


@lazy_dataclass(frozen=True, slots=True)
class LifecycleTimes:
    """Kafka's settings broker.heartbeat.interval.ms, broker.session.timeout.ms, initial.broker.registration.timeout.ms
    and log.dir.failure.timeout.ms.
    """

    heartbeat_interval_ms: int = 2_000
    session_timeout_ms: int = 9_000
    registration_timeout_ms: int = 60_000
    directory_failure_timeout_ms: int = 30_000


_DEFAULT_TIMES: Final = LifecycleTimes()


class BrokerLifecycle:
    """The membership of one broker. `run` sends the requests; the other methods set what the next heartbeat asks for.

    Add it as the last metadata publisher: the offset that it reports must have been applied by all other publishers.
    """

    def __init__(
        self,
        identity: BrokerIdentity,
        channel: MembershipChannel,
        *,
        clock: Clock,
        times: LifecycleTimes = _DEFAULT_TIMES,
    ) -> None:
        self._identity = identity
        self._channel = channel
        self._clock = clock
        self._times = times
        self.state = BrokerState.NOT_RUNNING
        self.epoch = NO_EPOCH
        self._metadata_offset = -1
        self._registered: BrokerRegistration | None = None
        """This broker's registration in its own metadata image."""
        self._last_response_ms = clock.monotonic_ms()  # of any controller
        self._offline_directories: dict[Uuid, float | None] = {}
        """When each directory failed, None once the controller knows."""
        self._want_fence = True
        self._want_shut_down = False
        self.is_released = False
        """Whether the controller has completed the controlled shutdown of this broker."""
        self._wake = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._unfenced = asyncio.Event()
        self._shut_down = asyncio.Event()

    # Requested state

    async def wait_caught_up(self) -> None:
        """Return once the metadata up to this broker's own registration is applied."""
        await self._caught_up.wait()

    def become_ready(self) -> None:
        """Ask to be unfenced: logs are recovered and requests can be served."""
        self._want_fence = False
        self._wake.set()

    async def wait_unfenced(self) -> None:
        """Return once the controller has unfenced this broker and its own metadata image shows that.

        The heartbeat response may precede the image. A librdkafka client that then sees metadata without this broker,
        or without any broker, asks again only after minutes.
        """
        await self._unfenced.wait()

    def on_directory_failure(self, directory: Uuid) -> None:
        """Report a failed log directory in every heartbeat from now on."""
        self._offline_directories.setdefault(directory, self._clock.monotonic_ms())
        self._wake.set()

    async def shut_down(self, *, controlled: bool = True) -> None:
        """Leave the cluster; with `controlled`, a running broker first has its leaderships moved away.

        Return when the controller completes the shutdown, or after CONTROLLED_SHUTDOWN_LIMIT_MS. `run` ends as well.
        """
        if controlled and self.state is BrokerState.RUNNING:
            self._become(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
            self._want_shut_down = True
            self._wake.set()
            try:
                async with asyncio.timeout(CONTROLLED_SHUTDOWN_LIMIT_MS / 1000):
                    await self._shut_down.wait()
            except TimeoutError:
                _log.warning("The controlled shutdown did not complete in time", broker=self._identity.broker_id)
        self._become(BrokerState.SHUTTING_DOWN)
        self._shut_down.set()
        self._wake.set()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Record the applied offset; the controller unfences a broker only when it has caught up."""
        self._metadata_offset = image.offset
        if self.state is BrokerState.STARTING and self.epoch != NO_EPOCH:
            self._wake.set()
        self._registered = image.brokers.get(self._identity.broker_id)
        self._check_unfenced()

    # Requests

    async def run(self) -> None:
        """Register and send heartbeats until shut down. Raises RegistrationTimedOut, DirectoryFailureUnreported."""
        if self._shut_down.is_set():  # shut down before `run` was called
            return
        self._become(BrokerState.STARTING)
        await self._register(self._times.registration_timeout_ms)
        failures = 0
        while not self._shut_down.is_set():
            self._wake.clear()
            failures = 0 if await self._send_heartbeat() else failures + 1
            if not self._shut_down.is_set():
                await self._pause(self._interval_ms(failures))

    async def _register(self, timeout_ms: float) -> None:
        """Register with retries; the session of a previous incarnation may have to expire first."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        retry_ms = float(FIRST_RETRY_MS)
        while not self._shut_down.is_set():
            try:
                response = await self._channel.register_broker(self._registration_request())
            except (KafkaError, ControllerUnavailable) as error:
                reason = str(error)
            else:
                self.epoch = BrokerEpoch(response.broker_epoch)
                self._last_response_ms = self._clock.monotonic_ms()
                _log.info("Registered", broker=self._identity.broker_id, epoch=self.epoch)
                return
            remaining_ms = deadline_ms - self._clock.monotonic_ms()
            if remaining_ms <= 0:
                raise RegistrationTimedOut(f"the controller did not register this broker: {reason}")
            _log.info("Registration failed and will be tried again", reason=reason, in_ms=int(retry_ms))
            self._wake.clear()
            await self._pause(min(retry_ms, remaining_ms))
            retry_ms = min(retry_ms * 2, self._times.heartbeat_interval_ms)

    async def _send_heartbeat(self) -> bool:
        """Send one heartbeat; return whether the response was successful."""
        request = self._heartbeat_request()
        try:
            response = await self._channel.heartbeat(request)
        except ControllerUnavailable as error:
            self._on_heartbeat_failure(str(error))
            return False
        except KafkaError as error:
            if error.code is not ErrorCode.STALE_BROKER_EPOCH:
                self._on_heartbeat_failure(str(error))
                return False
            # An administrator may have unregistered the broker; the process and its incarnation id are unchanged.
            _log.warning("This broker is not registered any more; registering again", epoch=self.epoch)
            await self._register(float("inf"))
            return True
        self._last_response_ms = self._clock.monotonic_ms()
        self._offline_directories.update(dict.fromkeys(request.offline_log_dirs))
        self._on_heartbeat_response(response)
        return True

    def _on_heartbeat_failure(self, reason: str) -> None:
        """End a controlled shutdown after half a session without a controller, since no controller moves the leaders.

        A failover takes less time. A cluster whose nodes all stop can thus stop without a quorum.
        """
        self._check_directory_failures_reported()
        silence_ms = self._clock.monotonic_ms() - self._last_response_ms
        _log.info("A heartbeat failed", reason=reason, silence_ms=int(silence_ms))
        if self._want_shut_down and silence_ms >= self._times.session_timeout_ms / 2:
            _log.warning("No controller responds; this broker shuts down without a completed handover", reason=reason)
            self._shut_down.set()

    def _check_directory_failures_reported(self) -> None:
        """Raise DirectoryFailureUnreported if a failed directory is unreported for too long."""
        limit_ms = self._clock.monotonic_ms() - self._times.directory_failure_timeout_ms
        for directory, failed_ms in self._offline_directories.items():
            if failed_ms is not None and failed_ms <= limit_ms:
                raise DirectoryFailureUnreported(
                    f"no controller acknowledged within {self._times.directory_failure_timeout_ms} ms "
                    f"that log directory {uuid_to_text(directory)} failed; the node stops"
                )

    def _on_heartbeat_response(self, response: BrokerHeartbeatResponse) -> None:
        if self._want_shut_down:
            if response.should_shut_down:
                self.is_released = True
                self._shut_down.set()
            return
        if self.state is BrokerState.STARTING and response.is_caught_up:
            self._become(BrokerState.RECOVERY)
            self._caught_up.set()
        if self.state is BrokerState.RECOVERY and not response.is_fenced:
            self._become(BrokerState.RUNNING)
            self._check_unfenced()

    def _check_unfenced(self) -> None:
        own = self._registered
        if self.state is BrokerState.RUNNING and own is not None and own.epoch == self.epoch and not own.fenced:
            self._unfenced.set()

    def _interval_ms(self, failures: int) -> float:
        if failures:
            longest_ms = min(self._times.heartbeat_interval_ms, self._times.session_timeout_ms)
            return float(min(FIRST_RETRY_MS * 2 ** min(failures - 1, 16), longest_ms))
        if self._want_shut_down:
            return SHUTDOWN_RETRY_MS
        if self.state is BrokerState.STARTING:
            return STARTING_INTERVAL_MS
        return float(self._times.heartbeat_interval_ms)

    async def _pause(self, milliseconds: float) -> None:
        try:
            async with asyncio.timeout(milliseconds / 1000):
                await self._wake.wait()
        except TimeoutError:
            return

    def _registration_request(self) -> BrokerRegistrationRequest:
        identity = self._identity
        return BrokerRegistrationRequest(
            broker_id=identity.broker_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=[
                Listener(name=name, host=each.host, port=each.port, security_protocol=each.security_protocol)
                for name, each in identity.listeners.items()
            ],
            features=[
                Feature(name=name, min_supported_version=levels.minimum, max_supported_version=levels.maximum)
                for name, levels in sorted(identity.features.items())
            ],
            rack=identity.rack,
            log_dirs=sorted(set(identity.directories) - self._offline_directories.keys()),
            previous_broker_epoch=identity.previous_epoch,
        )

    def _heartbeat_request(self) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self._identity.broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._metadata_offset,
            want_fence=self._want_fence,
            want_shut_down=self._want_shut_down,
            offline_log_dirs=list(self._offline_directories),
        )

    def _become(self, state: BrokerState) -> None:
        if state is not self.state:
            _log.info(f"Transitioning from {self.state.name} to {state.name}", broker=self._identity.broker_id)
            self.state = state
