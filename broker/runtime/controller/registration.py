"""Registration of this node's controller: its endpoints and supported feature levels (KIP-919).

Every controller, standby or active, registers itself with the active controller until the image shows its incarnation.
Controllers have no heartbeats and are never unregistered; a restart replaces the registration.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Final, NoReturn, Protocol

from broker.logs import EventLog
from broker.metadata.image.cluster_image import RegisteredEndpoint
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.features import VersionRange
from broker.metadata.image.metadata_image import MetadataImage
from broker.runtime.controller.controller_router import ControllerUnavailable
from protocol.errors import KafkaError
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)
from protocol.primitives import Uuid

FIRST_RETRY_MS: Final = 100
LAST_RETRY_MS: Final = 120_000

_log: Final = EventLog("broker.registration")


class RegistrationChannel(Protocol):
    """ControllerRegistration requests to the active controller. Raises KafkaError, ControllerUnavailable."""

    def register_controller(
        self, request: ControllerRegistrationRequest
    ) -> Awaitable[ControllerRegistrationResponse]: ...


@lazy_dataclass(frozen=True, slots=True)
class ControllerIdentity:
    """The content of a controller's registration. Every process draws a new `incarnation_id`."""

    node_id: int
    incarnation_id: Uuid
    listeners: Mapping[str, RegisteredEndpoint]
    features: Mapping[str, VersionRange]


class ControllerRegistrar:
    """A metadata publisher that keeps one controller registered while `run` runs."""

    def __init__(self, identity: ControllerIdentity, channel: RegistrationChannel) -> None:
        self._identity = identity
        self._channel = channel
        self._missing = asyncio.Event()  # the image could contain this incarnation and does not
        self._settled = asyncio.Event()  # the opposite
        self._settled.set()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Check whether the image contains this incarnation."""
        known = image.brokers.controllers.get(self._identity.node_id)
        is_registered = known is not None and known.incarnation_id == self._identity.incarnation_id
        if is_registered or not image.features.version.supports_controller_registration:
            self._missing.clear()
            self._settled.set()
        else:
            self._settled.clear()
            self._missing.set()

    async def run(self) -> NoReturn:
        """Register whenever the registration is missing, with a growing pause until the image shows it."""
        retry_ms = FIRST_RETRY_MS
        while True:
            await self._missing.wait()
            try:
                await self._channel.register_controller(self._request())
            except (KafkaError, ControllerUnavailable) as error:
                _log.info("The controller is not registered yet", reason=str(error), again_in_ms=retry_ms)
            if await self._settles_within(retry_ms):
                _log.info("The controller is registered", node=self._identity.node_id)
                retry_ms = FIRST_RETRY_MS
            else:
                retry_ms = min(2 * retry_ms, LAST_RETRY_MS)

    async def _settles_within(self, limit_ms: int) -> bool:
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self._settled.wait()
        except TimeoutError:
            return False
        return True

    def _request(self) -> ControllerRegistrationRequest:
        identity = self._identity
        return ControllerRegistrationRequest(
            controller_id=identity.node_id,
            incarnation_id=identity.incarnation_id,
            listeners=[
                Listener(name=name, host=each.host, port=each.port, security_protocol=each.security_protocol)
                for name, each in identity.listeners.items()
            ],
            features=[
                Feature(name=name, min_supported_version=levels.minimum, max_supported_version=levels.maximum)
                for name, levels in sorted(identity.features.items())
            ],
        )
