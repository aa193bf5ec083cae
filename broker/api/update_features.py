"""UpdateFeatures (key 57), versions 0-2: finalize feature levels, all of a request or none (KIP-584, KIP-778).

Versions 0 and 1 repeat the outcome per feature; from version 2 on there is one for all.
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

_ONE_OUTCOME_FOR_ALL: Final = 2


class KraftVersionUpgrade(Protocol):
    """The quorum's own feature level, which is not the controller's to write."""

    def upgrade_kraft_version(self, version: int) -> Awaitable[None]:
        """Raise kraft.version and return when that is committed; at that version already, do nothing.

        Raises KafkaError, NOT_CONTROLLER among others.
        """
        ...


class FixedKraftVersion:
    """A quorum that stays at its kraft.version."""

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
        if context.api_version >= _ONE_OUTCOME_FOR_ALL:
            return UpdateFeaturesResponse(error_message=None)
        results = [UpdatableFeatureResult(change.feature, ErrorCode.NONE, ErrorCode.NONE.name) for change in changes]
        return UpdateFeaturesResponse(error_message=None, results=results)

    async def _update(self, changes: Sequence[FeatureChange], *, validate_only: bool) -> None:
        """The quorum's level goes up first, once all changes are known to be possible."""
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
    """Version 0 knows one kind of downgrade."""
    kind = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    return FeatureChange(update.feature, update.max_version_level, kind)
