"""Notices that the process of a broker has ended, so that the controller need not wait out its session.

When a process ends, however it ends, its machine closes its connections at once and refuses new ones. So when the
connection that a broker's heartbeats came on is lost, and nobody listens any more where the broker listens, the active
controller fences it; a controller that has just become active asks that of all brokers, because the one that led before
may have been one of them. That is only ever sooner than the end of the session, and costs nothing but an election if it
was wrong: the next heartbeat unfences the broker.

An address says something by refusing only if it has answered since the broker was unfenced: what a broker advertises
may be out of this controller's reach, or behind something that answers for it. It is asked more than once, since a link
may just be broken. A machine that is gone refuses nothing, nor does one behind a broken link: those are left to the
session.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from broker.logs import EventLog
from broker.metadata.image.cluster_image import BrokerRegistration, RegisteredEndpoint
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.runtime.controller.driver import Command
from protocol.errors import KafkaError
from protocol.ids import BrokerEpoch, BrokerId

CHECKS: Final = 2
"""Refusals in a row that are believed."""
CHECK_INTERVAL_S: Final = 0.05
MOST_CHECKS: Final = 8
"""The sockets of a process that ends do not close in one moment, and Linux closes those first that were opened last: on
a busy machine it still accepts for a while after its connections are gone."""
INTRODUCTIONS: Final = 8
"""How often an address may fail to answer before it is taken for one that never will."""
INTRODUCTION_PAUSE_S: Final = 0.1
"""After the first failure; doubled after each, so that all take less than half a minute."""
MOST_AT_ONCE: Final = 32
"""Addresses asked at a time when a controller becomes active."""

_log: Final = EventLog("broker.controller")


class ProbeResult(Enum):
    """What comes of a connection to where a broker listens."""

    LISTENS = "listens"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class FencingController(Protocol):
    """What this needs of the controller's driver."""

    @property
    def is_active(self) -> bool: ...

    def submit(self, command: Command[None]) -> "asyncio.Future[None]": ...


class HeartbeatConnection(Protocol):
    def when_closed(self, callback: Callable[[], None]) -> None: ...


Probe = Callable[[RegisteredEndpoint], Awaitable[ProbeResult]]
Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


@dataclass(slots=True)
class _Watched:
    epoch: BrokerEpoch
    endpoint: RegisteredEndpoint
    has_answered: bool = False
    connection: HeartbeatConnection | None = None
    is_suspected: bool = False


class BrokerWatch:
    """A publisher of metadata, on every controller. `listener` names the listener that brokers are asked at."""

    def __init__(
        self, own_id: int, listener: str, controller: FencingController, probe: Probe, *, spawn: Spawn
    ) -> None:
        self._own_id = own_id
        self._listener = listener
        self._controller = controller
        self._probe = probe
        self._spawn = spawn
        self._watched: dict[BrokerId, _Watched] = {}
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Watch who is unfenced, from then on and for as long."""
        for broker_id in () if delta.brokers is None else map(BrokerId, delta.brokers.changed_brokers):
            broker = image.brokers.get(broker_id)
            watched = self._watched.get(broker_id)
            if broker is None or broker.fenced or broker_id == self._own_id:
                self._watched.pop(broker_id, None)
            elif watched is None or watched.epoch != broker.epoch:
                self._begin(broker)

    def _begin(self, broker: BrokerRegistration) -> None:
        endpoint = broker.endpoints.get(self._listener) or next(iter(broker.endpoints.values()), None)
        if endpoint is not None:
            self._watched[broker.id] = watched = _Watched(broker.epoch, endpoint)
            self._spawn(self._introduce(broker.id, watched))

    async def _introduce(self, broker_id: BrokerId, watched: _Watched) -> None:
        for failures in range(INTRODUCTIONS):
            async with self._slots:
                watched.has_answered = await self._probe(watched.endpoint) is ProbeResult.LISTENS
            if watched.has_answered:
                return
            await asyncio.sleep(INTRODUCTION_PAUSE_S * 2**failures)
            if self._watched.get(broker_id) is not watched:
                return

    def on_heartbeat(self, broker_id: BrokerId, epoch: BrokerEpoch, connection: HeartbeatConnection) -> None:
        """A heartbeat came on a connection."""
        watched = self._watched.get(broker_id)
        if watched is not None and watched.epoch == epoch and watched.connection is not connection:
            watched.connection = connection
            connection.when_closed(lambda: self._on_closed(broker_id, watched, connection))

    def _on_closed(self, broker_id: BrokerId, watched: _Watched, connection: HeartbeatConnection) -> None:
        if watched.connection is connection:
            watched.connection = None
            self._suspect(broker_id, watched)

    def on_active(self) -> None:
        """This controller has become the active one."""
        for broker_id, watched in self._watched.items():
            self._suspect(broker_id, watched)

    def _suspect(self, broker_id: BrokerId, watched: _Watched) -> None:
        if watched.has_answered and not watched.is_suspected and self._controller.is_active:
            watched.is_suspected = True
            self._spawn(self._examine(broker_id, watched))

    async def _examine(self, broker_id: BrokerId, watched: _Watched) -> None:
        try:
            if await self._is_gone(broker_id, watched):
                await self._fence(broker_id, watched.epoch)
        finally:
            watched.is_suspected = False

    async def _is_gone(self, broker_id: BrokerId, watched: _Watched) -> bool:
        """Whether nobody listens any more, found out before it says anything again."""
        refusals = 0
        for _ in range(MOST_CHECKS):
            async with self._slots:
                answer = await self._probe(watched.endpoint)
            if (
                answer is ProbeResult.UNKNOWN
                or watched.connection is not None
                or self._watched.get(broker_id) is not watched
            ):
                return False
            refusals = refusals + 1 if answer is ProbeResult.REFUSED else 0
            if refusals == CHECKS:
                return True
            await asyncio.sleep(CHECK_INTERVAL_S)
        return False

    async def _fence(self, broker_id: BrokerId, epoch: BrokerEpoch) -> None:
        _log.info("The process of a broker has ended", broker=broker_id, epoch=epoch)

        try:
            await self._controller.submit(
                lambda controller, _now_ms: controller.fence_terminated_broker(broker_id, epoch)
            )
        except KafkaError as error:  # leadership went meanwhile: the next active controller asks for itself
            _log.info("A broker whose process has ended is left to the next controller", broker=broker_id, error=error)


async def probe(endpoint: RegisteredEndpoint, *, timeout_s: float) -> ProbeResult:
    """Connect over TCP and hang up. A name with several addresses is never refused: one of them may be good."""
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    except ConnectionRefusedError:
        return ProbeResult.REFUSED
    except (OSError, TimeoutError, ValueError, OverflowError):  # the latter two: hosts and ports that cannot be
        return ProbeResult.UNKNOWN
    writer.close()
    return ProbeResult.LISTENS
