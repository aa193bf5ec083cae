"""Detection of ended broker processes, so that the controller fences a broker before its session expires.

When a process ends, its host closes its connections and refuses new ones. The active controller therefore fences a
broker when the connection of its heartbeats is lost and its listener refuses connections. A controller that has just
become active checks every broker, because the previous controller may have been one of the ended processes. A wrong
decision costs one election: the next heartbeat unfences the broker.

A refusal counts only if the address has accepted a connection since the broker was unfenced: an advertised address may
be unreachable from this controller, or a proxy may answer for it. An address is probed repeatedly, because a link may
fail for a moment. A host that is down, or behind a failed link, refuses nothing; its brokers are left to their
sessions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from typing import Any, Final, Protocol

from broker.logs import EventLog
from broker.metadata.image.cluster_image import BrokerRegistration, RegisteredEndpoint
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.runtime.controller.driver import Command
from protocol.errors import KafkaError
from protocol.ids import BrokerEpoch, BrokerId
from protocol.lazy_dataclass import lazy_dataclass

REFUSALS_NEEDED: Final = 2
"""Consecutive refusals that prove the end of a process."""
CHECK_INTERVAL_S: Final = 0.05
MAX_CHECKS: Final = 8
"""Probes per check. The sockets of an ending process do not close at once, and Linux closes the most recent first: on a
busy host the listener still accepts for a while after the connections are gone."""
REACHABILITY_CHECKS: Final = 8
"""Probes of a newly unfenced broker before its address is considered unreachable."""
FIRST_REACHABILITY_PAUSE_S: Final = 0.1
"""Pause after the first failed probe; it doubles after each, so that all probes take less than half a minute."""
MAX_CONCURRENT_PROBES: Final = 32
"""Concurrent probes when a controller becomes active."""

_log: Final = EventLog("broker.controller")


class ProbeResult(Enum):
    """The outcome of a connection attempt to a broker's listener."""

    LISTENS = "listens"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class FencingController(Protocol):
    """The part of the controller's driver that fencing needs."""

    @property
    def is_active(self) -> bool: ...

    def submit(self, command: Command[None]) -> "asyncio.Future[None]": ...


class HeartbeatConnection(Protocol):
    def when_closed(self, callback: Callable[[], None]) -> None: ...


Probe = Callable[[RegisteredEndpoint], Awaitable[ProbeResult]]
Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


@lazy_dataclass(slots=True)
class _Watched:
    epoch: BrokerEpoch
    endpoint: RegisteredEndpoint
    connection: HeartbeatConnection | None = None
    is_fenced: bool = True
    has_answered: bool = False
    is_suspected: bool = False


class BrokerWatch:
    """A metadata publisher on every controller. `listener` names the listener whose endpoint is probed."""

    def __init__(
        self, own_id: int, listener: str, controller: FencingController, probe: Probe, *, spawn: Spawn
    ) -> None:
        self._own_id = own_id
        self._listener = listener
        self._controller = controller
        self._probe = probe
        self._spawn = spawn
        self._watched: dict[BrokerId, _Watched] = {}
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_PROBES)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Watch each broker while it is unfenced.

        The heartbeat that unfences a broker arrives while it is fenced, and the next one follows up to
        `broker.heartbeat.interval.ms` later. A fenced broker's connection is therefore remembered as well.
        """
        for broker_id in () if delta.brokers is None else map(BrokerId, delta.brokers.changed_brokers):
            broker = image.brokers.get(broker_id)
            watched = self._watched.get(broker_id)
            if broker is None or broker_id == self._own_id:
                self._watched.pop(broker_id, None)
            elif watched is None or watched.epoch != broker.epoch or watched.is_fenced != broker.fenced:
                self._begin(broker, watched)

    def _begin(self, broker: BrokerRegistration, previous: _Watched | None) -> None:
        endpoint = broker.endpoints.get(self._listener) or next(iter(broker.endpoints.values()), None)
        if endpoint is None:
            self._watched.pop(broker.id, None)
            return
        connection = None if previous is None or previous.epoch != broker.epoch else previous.connection
        self._watched[broker.id] = watched = _Watched(broker.epoch, endpoint, connection, is_fenced=broker.fenced)
        if not broker.fenced:
            self._spawn(self._check_reachable(broker.id, watched))

    async def _check_reachable(self, broker_id: BrokerId, watched: _Watched) -> None:
        for failures in range(REACHABILITY_CHECKS):
            async with self._slots:
                watched.has_answered = await self._probe(watched.endpoint) is ProbeResult.LISTENS
            if watched.has_answered:
                return
            await asyncio.sleep(FIRST_REACHABILITY_PAUSE_S * 2**failures)
            if self._watched.get(broker_id) is not watched:
                return

    def on_heartbeat(self, broker_id: BrokerId, epoch: BrokerEpoch, connection: HeartbeatConnection) -> None:
        """Remember the connection of a broker's heartbeats."""
        watched = self._watched.get(broker_id)
        if watched is not None and watched.epoch == epoch and watched.connection is not connection:
            watched.connection = connection
            connection.when_closed(lambda: self._on_closed(broker_id, connection))

    def _on_closed(self, broker_id: BrokerId, connection: HeartbeatConnection) -> None:
        watched = self._watched.get(broker_id)
        if watched is not None and watched.connection is connection:
            watched.connection = None
            self._suspect(broker_id, watched)

    def on_active(self) -> None:
        """Check all watched brokers: this controller has become the active one."""
        for broker_id, watched in self._watched.items():
            self._suspect(broker_id, watched)

    def _suspect(self, broker_id: BrokerId, watched: _Watched) -> None:
        if watched.has_answered and not watched.is_fenced and not watched.is_suspected and self._controller.is_active:
            watched.is_suspected = True
            self._spawn(self._fence_if_gone(broker_id, watched))

    async def _fence_if_gone(self, broker_id: BrokerId, watched: _Watched) -> None:
        try:
            if await self._is_gone(broker_id, watched):
                await self._fence(broker_id, watched.epoch)
        finally:
            watched.is_suspected = False

    async def _is_gone(self, broker_id: BrokerId, watched: _Watched) -> bool:
        """Whether the listener refuses connections and no heartbeat arrives meanwhile."""
        refusals = 0
        for _ in range(MAX_CHECKS):
            async with self._slots:
                answer = await self._probe(watched.endpoint)
            if (
                answer is ProbeResult.UNKNOWN
                or watched.connection is not None
                or self._watched.get(broker_id) is not watched
            ):
                return False
            refusals = refusals + 1 if answer is ProbeResult.REFUSED else 0
            if refusals == REFUSALS_NEEDED:
                return True
            await asyncio.sleep(CHECK_INTERVAL_S)
        return False

    async def _fence(self, broker_id: BrokerId, epoch: BrokerEpoch) -> None:
        _log.info("The process of a broker has ended", broker=broker_id, epoch=epoch)

        try:
            await self._controller.submit(
                lambda controller, _now_ms: controller.fence_terminated_broker(broker_id, epoch)
            )
        except KafkaError as error:  # leadership was lost; the next active controller checks all brokers
            _log.info("An ended broker process is left to the next controller", broker=broker_id, error=error)


async def probe(endpoint: RegisteredEndpoint, *, timeout_s: float) -> ProbeResult:
    """Connect over TCP and close. A host name with several addresses never counts as refused: one may accept."""
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    except ConnectionRefusedError:
        return ProbeResult.REFUSED
    except (OSError, TimeoutError, ValueError, OverflowError):  # the last two: invalid hosts and ports
        return ProbeResult.UNKNOWN
    writer.close()
    return ProbeResult.LISTENS
