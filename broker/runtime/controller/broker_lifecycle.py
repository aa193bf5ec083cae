"""The broker's life as the controller sees it: register, catch up, be unfenced, send heartbeats, leave in order.

The channel carries the very messages that travel between nodes, so that it makes no difference where the controller
is. States and their order are Kafka's: STARTING until the own registration has been read back, RECOVERY until logs are
recovered and the broker says it is ready, RUNNING once unfenced (KIP-631).
"""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
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
    """Kafka's numbers, as the metric BrokerState shows them."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class RegistrationTimedOut(Exception):
    """No controller took the registration in time; the node must stop."""


class RegisteredBroker(Protocol):
    """Knows the epoch of this broker's registration, -1 before there is one."""

    @property
    def epoch(self) -> BrokerEpoch: ...


class MembershipChannel(Protocol):
    """The way to the active controller. Raises KafkaError for a refusal, ControllerUnavailable without an answer."""

    def register_broker(self, request: BrokerRegistrationRequest) -> Awaitable[BrokerRegistrationResponse]: ...

    def heartbeat(self, request: BrokerHeartbeatRequest) -> Awaitable[BrokerHeartbeatResponse]: ...


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What a broker registers as. `incarnation_id` is drawn anew by every process.

    `previous_epoch` is the epoch that a clean shutdown left in the log directories, -1 if it was not clean.
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
    """The controller could not be told in time that a log directory failed; the node must stop, or its replicas there
    would stay leaders and members for ever."""


@dataclass(frozen=True, slots=True)
class LifecycleTimes:
    """Kafka's keys broker.heartbeat.interval.ms, broker.session.timeout.ms, initial.broker.registration.timeout.ms and
    log.dir.failure.timeout.ms."""

    heartbeat_interval_ms: int = 2_000
    session_timeout_ms: int = 9_000
    registration_timeout_ms: int = 60_000
    directory_failure_timeout_ms: int = 30_000


class BrokerLifecycle:
    """One broker's membership. `run` does the talking; the other methods say what the broker wants.

    Install it as the last metadata publisher: what it reports as read must have been applied by all the others.
    """

    def __init__(
        self,
        identity: BrokerIdentity,
        channel: MembershipChannel,
        *,
        clock: Clock,
        times: LifecycleTimes = LifecycleTimes(),
    ) -> None:
        self._identity = identity
        self._channel = channel
        self._clock = clock
        self._times = times
        self.state = BrokerState.NOT_RUNNING
        self.epoch = NO_EPOCH
        self._metadata_offset = -1
        self._registered: BrokerRegistration | None = None
        """This broker, as its own metadata have it."""
        self._answered_ms = clock.monotonic_ms()  # when a controller last did
        self._offline_directories: dict[Uuid, float | None] = {}
        """When each failed, None once the controller knows."""
        self._want_fence = True
        self._want_shut_down = False
        self.is_released = False
        """Whether the controller agreed to this broker's leave."""
        self._wake = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._unfenced = asyncio.Event()
        self._shut_down = asyncio.Event()

    # What the broker wants and waits for

    async def wait_caught_up(self) -> None:
        """Return when the metadata up to the own registration has been applied."""
        await self._caught_up.wait()

    def become_ready(self) -> None:
        """Logs are recovered and requests can be served: ask to be unfenced."""
        self._want_fence = False
        self._wake.set()

    async def wait_unfenced(self) -> None:
        """Return when the controller lets this broker serve, and its own metadata say so.

        The answer may come first. A client that is told then of a cluster without this broker, or without any, asks
        again only after minutes (librdkafka).
        """
        await self._unfenced.wait()

    def on_directory_failure(self, directory: Uuid) -> None:
        """A log directory is offline: say so in every heartbeat from now on."""
        self._offline_directories.setdefault(directory, self._clock.monotonic_ms())
        self._wake.set()

    async def shut_down(self, *, controlled: bool = True) -> None:
        """Leave the cluster: have leaders moved away first if `controlled` and there is anyone to do it.

        Returns when the controller lets go, or after CONTROLLED_SHUTDOWN_LIMIT_MS; `run` ends as well.
        """
        if controlled and self.state is BrokerState.RUNNING:
            self._become(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
            self._want_shut_down = True
            self._wake.set()
            try:
                async with asyncio.timeout(CONTROLLED_SHUTDOWN_LIMIT_MS / 1000):
                    await self._shut_down.wait()
            except TimeoutError:
                _log.warning("The controller did not let this broker go in time", broker=self._identity.broker_id)
        self._become(BrokerState.SHUTTING_DOWN)
        self._shut_down.set()
        self._wake.set()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Remember how far this broker has read; the controller waits for it before it unfences anyone."""
        self._metadata_offset = image.offset
        if self.state is BrokerState.STARTING and self.epoch != NO_EPOCH:
            self._wake.set()
        self._registered = image.brokers.get(self._identity.broker_id)
        self._serve_if_unfenced()

    # The conversation

    async def run(self) -> None:
        """Register and send heartbeats until shut down. Raises RegistrationTimedOut, DirectoryFailureUnreported."""
        if self._shut_down.is_set():  # told to stop before it began
            return
        self._become(BrokerState.STARTING)
        await self._register(self._times.registration_timeout_ms)
        failures = 0
        while not self._shut_down.is_set():
            self._wake.clear()
            failures = 0 if await self._beat() else failures + 1
            if not self._shut_down.is_set():
                await self._pause(self._interval_ms(failures))

    async def _register(self, timeout_ms: float) -> None:
        """Ask until a controller agrees; a former life of this broker may have to expire first."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        retry_ms = float(FIRST_RETRY_MS)
        while not self._shut_down.is_set():
            try:
                response = await self._channel.register_broker(self._registration())
            except (KafkaError, ControllerUnavailable) as error:
                reason = str(error)
            else:
                self.epoch = BrokerEpoch(response.broker_epoch)
                self._answered_ms = self._clock.monotonic_ms()
                _log.info("Registered", broker=self._identity.broker_id, epoch=self.epoch)
                return
            remaining_ms = deadline_ms - self._clock.monotonic_ms()
            if remaining_ms <= 0:
                raise RegistrationTimedOut(f"the controller did not register this broker: {reason}")
            _log.info("Registration failed and will be tried again", reason=reason, in_ms=int(retry_ms))
            self._wake.clear()
            await self._pause(min(retry_ms, remaining_ms))
            retry_ms = min(retry_ms * 2, self._times.heartbeat_interval_ms)

    async def _beat(self) -> bool:
        """One heartbeat; whether it was answered in kind."""
        request = self._heartbeat()
        try:
            response = await self._channel.heartbeat(request)
        except ControllerUnavailable as error:
            self._note_failure(str(error))
            return False
        except KafkaError as error:
            if error.code is not ErrorCode.STALE_BROKER_EPOCH:
                self._note_failure(str(error))
                return False
            # The registration is gone, perhaps by an administrator's hand; this process still is who it was.
            _log.warning("The controller does not know this broker any more: registering again", epoch=self.epoch)
            await self._register(float("inf"))
            return True
        self._answered_ms = self._clock.monotonic_ms()
        self._offline_directories.update(dict.fromkeys(request.offline_log_dirs))
        self._follow(response)
        return True

    def _note_failure(self, reason: str) -> None:
        """Without a controller for half a session nobody would move this broker's leaders: it need not wait for that.

        A failover takes less. So a cluster whose nodes all stop does stop, although the last ones have no quorum left.
        """
        self._check_failures_told()
        silence_ms = self._clock.monotonic_ms() - self._answered_ms
        _log.info("A heartbeat failed", reason=reason, silence_ms=int(silence_ms))
        if self._want_shut_down and silence_ms >= self._times.session_timeout_ms / 2:
            _log.warning("No controller answers: this broker leaves without its consent", reason=reason)
            self._shut_down.set()

    def _check_failures_told(self) -> None:
        """Raises DirectoryFailureUnreported."""
        limit_ms = self._clock.monotonic_ms() - self._times.directory_failure_timeout_ms
        for directory, failed_ms in self._offline_directories.items():
            if failed_ms is not None and failed_ms <= limit_ms:
                raise DirectoryFailureUnreported(
                    f"no controller could be told within {self._times.directory_failure_timeout_ms} ms "
                    f"that log directory {uuid_to_text(directory)} failed"
                )

    def _follow(self, response: BrokerHeartbeatResponse) -> None:
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
            self._serve_if_unfenced()

    def _serve_if_unfenced(self) -> None:
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

    def _registration(self) -> BrokerRegistrationRequest:
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

    def _heartbeat(self) -> BrokerHeartbeatRequest:
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
