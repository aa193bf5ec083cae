"""UpdateFeatures (key 57), versions 0-2: finalize feature levels, all of a request or none (KIP-584, KIP-778).

Versions 0 and 1 repeat the result per feature; version 2 has one result.
"""

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Final, Protocol

from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from broker.metadata.controller.controller import Controller
from broker.metadata.controller.feature_updates import FeatureChange, UpgradeType
from broker.metadata.controller.result import ControllerResult
from broker.metadata.image.features import KRAFT_VERSION
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_ONE_RESULT_FROM: Final = 2


class KraftVersionUpgrade(Protocol):
    """The feature level of the quorum itself, which the controller does not write."""

    def upgrade_kraft_version(self, version: int) -> Awaitable[None]:
        """Raise kraft.version and return when the change is committed; do nothing at that version.

        Raises KafkaError, NOT_CONTROLLER among others.
        """
        ...


class FixedKraftVersion:
    """A quorum whose kraft.version cannot change."""

    def __init__(self, version: int) -> None:
        self._version = version

    async def upgrade_kraft_version(self, version: int) -> None:
        if version != self._version:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"the quorum stays at kraft.version {self._version}")


class UpdateFeaturesHandler:
    """Answers UpdateFeatures."""

    def __init__(self, controller: ControllerGateway, quorum: KraftVersionUpgrade) -> None:
        self._controller = controller
        self._quorum = quorum

    async def __call__(self, request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
        changes = [_change(update) for update in request.feature_updates]
        try:
            await self._update(changes, validate_only=request.validate_only)
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_UPDATE_VERSION:
                raise
            return UpdateFeaturesResponse(
                error_code=error.code, error_message=f"nothing was changed, since {error.message}"
            )
        if context.api_version >= _ONE_RESULT_FROM:
            return UpdateFeaturesResponse(error_message=None)
        results = [UpdatableFeatureResult(change.feature, ErrorCode.NONE, ErrorCode.NONE.name) for change in changes]
        return UpdateFeaturesResponse(error_message=None, results=results)

    async def _update(self, changes: Sequence[FeatureChange], *, validate_only: bool) -> None:
        """Raise the quorum's level first, once the controller has validated all changes."""
        kraft = [change.level for change in changes if change.feature == KRAFT_VERSION]
        if kraft and not validate_only:
            await self._controller.submit(partial(_command, changes, validate_only=True))
            await self._quorum.upgrade_kraft_version(kraft[-1])
        await self._controller.submit(partial(_command, changes, validate_only=validate_only))


def _command(
    changes: Sequence[FeatureChange], controller: Controller, _now_ms: int, *, validate_only: bool
) -> ControllerResult[None]:
    return controller.update_features(changes, validate_only=validate_only)


def _change(update: FeatureUpdateKey) -> FeatureChange:
    """Return the change; version 0 has one kind of downgrade."""
    kind = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    return FeatureChange(update.feature, update.max_version_level, kind)
