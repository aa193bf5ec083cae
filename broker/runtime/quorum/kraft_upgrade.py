"""The step from static to dynamic voters, as UpdateFeatures asks for it (KIP-853, KAFKA-16538)."""

from asyncio import Future
from typing import Protocol

from broker.quorum.messages import ChangeVotersResponse, Response
from protocol.errors import ErrorCode, KafkaError


class UpgradableQuorum(Protocol):
    """What this needs of the quorum's driver."""

    def upgrade_kraft_version(self, version: int) -> "Future[Response]": ...


class KraftUpgrade:
    """Raises kraft.version through the quorum."""

    def __init__(self, quorum: UpgradableQuorum) -> None:
        self._quorum = quorum

    async def upgrade_kraft_version(self, version: int) -> None:
        """Return when the new version is committed. Raises KafkaError."""
        response = await self._quorum.upgrade_kraft_version(version)
        assert isinstance(response, ChangeVotersResponse)
        if response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:  # which the controller's clients know by another name
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        if response.error is not ErrorCode.NONE:
            raise KafkaError(response.error, response.message or "")
