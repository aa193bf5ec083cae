"""The upgrade from static to dynamic voters by UpdateFeatures (KIP-853, KAFKA-16538)."""

from asyncio import Future
from typing import Protocol

from broker.quorum.messages import ChangeVotersResponse, Response
from protocol.errors import ErrorCode, KafkaError


class UpgradableQuorum(Protocol):
    """The part of `QuorumDriver` that the upgrade uses."""

    def upgrade_kraft_version(self, version: int) -> "Future[Response]": ...


class KraftUpgrade:
    """Upgrades kraft.version through the quorum."""

    def __init__(self, quorum: UpgradableQuorum) -> None:
        self._quorum = quorum

    async def upgrade_kraft_version(self, version: int) -> None:
        """Return when the new version is committed. Raise KafkaError."""
        response = await self._quorum.upgrade_kraft_version(version)
        assert isinstance(response, ChangeVotersResponse)
        if response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:  # controller clients expect the controller's error code
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        if response.error is not ErrorCode.NONE:
            raise KafkaError(response.error, response.message or "")
