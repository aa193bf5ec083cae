"""Updates of finalized feature levels: all changes of a request or none, and only to levels that all members support.

A level must be supported by this program, every registered broker and every controller (KIP-584, KIP-919).
`metadata.version` can be downgraded only if no record format changed in between (KIP-778). `kraft.version` is checked
here as well, but stored in control records; the caller must have the quorum raise it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from broker.metadata.controller.eligible_leaders import eligible_leaders_disabled
from broker.metadata.controller.result import ControllerResult
from broker.metadata.controller.state import MIN_INSYNC_REPLICAS, ConfigLayers, ControllerState
from broker.metadata.image.config_image import CLUSTER_DEFAULT, ConfigResource, ResourceType, config_record
from broker.metadata.image.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    SUPPORTED_FEATURES,
    VersionRange,
    feature_record,
)
from broker.metadata.image.metadata_version import METADATA_VERSION, MetadataVersion
from broker.metadata.image.records import VersionedRecord
from protocol.errors import ErrorCode, KafkaError

_ABSENT: Final = VersionRange(0, 0)

# The prerequisite of a level: another feature and its lowest level.
_NEEDS: Final[Mapping[tuple[str, int], tuple[str, int]]] = {
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1): (METADATA_VERSION, MetadataVersion.IV_4_0_1),
    (KRAFT_VERSION, 1): (METADATA_VERSION, MetadataVersion.IV_3_9_0),
}


class UpgradeType(IntEnum):
    """The permitted direction of a change, as the request numbers it."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureChange(NamedTuple):
    """A requested level; `upgrade_type` is the number in the request, known or not."""

    feature: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


class FeatureUpdates:
    """The command UpdateFeatures."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def update(self, changes: Sequence[FeatureChange], *, validate_only: bool) -> ControllerResult[None]:
        """Finalize new levels. Raises KafkaError INVALID_UPDATE_VERSION for the first invalid change."""
        proposed = self._levels()
        proposed.update({change.feature: change.level for change in changes})
        for change in changes:
            self._check(change, proposed)
        return ControllerResult(() if validate_only else list(self._records(changes)), None)

    def _levels(self) -> dict[str, int]:
        return {**self._state.image.features.finalized(), KRAFT_VERSION: self._state.quorum.kraft_version}

    def _check(self, change: FeatureChange, proposed: Mapping[str, int]) -> None:
        feature, level, number = change
        if number not in tuple(UpgradeType):
            raise _refusal(change, f"upgrade type {number} is unknown")
        if level < 0:
            raise _refusal(change, "a level cannot be less than 0")
        self._check_support(change)
        present = self._levels().get(feature, 0)
        if level < present and number == UpgradeType.UPGRADE:
            raise _refusal(change, f"the level is {present}, and the request does not allow a downgrade")
        if level > present and number != UpgradeType.UPGRADE:
            raise _refusal(change, f"the level is {present}, and the request asks for a downgrade")
        if level < present and feature == KRAFT_VERSION:
            raise _refusal(change, "this feature cannot be downgraded")
        if feature == METADATA_VERSION:
            self._check_metadata_downgrade(change)
        needed = _NEEDS.get((feature, level))
        if needed is not None and proposed.get(needed[0], 0) < needed[1]:
            raise _refusal(change, f"{needed[0]} must be at level {int(needed[1])} or above")

    def _check_support(self, change: FeatureChange) -> None:
        if change.feature not in SUPPORTED_FEATURES:
            raise _refusal(change, "the feature does not exist")
        for member, features in self._members():
            supported = features.get(change.feature, _ABSENT)
            if change.level not in supported:
                raise _refusal(change, f"{member} supports levels {supported.minimum} to {supported.maximum}")
        if not self._state.version.supports_controller_registration:
            return
        registered = {self._state.settings.node_id, *self._state.image.brokers.controllers}
        for voter in sorted(self._state.quorum.voter_ids):
            if voter not in registered:
                raise _refusal(change, f"controller {voter} is not registered, and may not support the level")

    def _members(self) -> Iterator[tuple[str, Mapping[str, VersionRange]]]:
        own = self._state.settings.node_id
        yield f"controller {own}", SUPPORTED_FEATURES
        for broker in self._state.image.brokers.all():
            yield f"broker {broker.id}", broker.features
        if self._state.version.supports_controller_registration:
            for controller_id, controller in sorted(self._state.image.brokers.controllers.items()):
                if controller_id != own:
                    yield f"controller {controller_id}", controller.features

    def _check_metadata_downgrade(self, change: FeatureChange) -> None:
        lost = [level for level in MetadataVersion if change.level < level <= self._state.version]
        if any(level.changes_records for level in lost):
            raise _refusal(change, "the lower level cannot express all metadata, which might be lost")

    def _records(self, changes: Iterable[FeatureChange]) -> Iterator[VersionedRecord]:
        """Return the records, metadata.version first as in snapshots: later records may depend on it."""
        present = self._levels()
        wanted = {change.feature: change.level for change in changes if change.feature != KRAFT_VERSION}
        for feature in sorted(wanted, key=lambda name: (name != METADATA_VERSION, name)):
            if wanted[feature] != present.get(feature, 0):
                yield feature_record(feature, wanted[feature])
        if ELIGIBLE_LEADER_REPLICAS_VERSION in wanted:
            yield from self._eligible_leader_records(enabled=wanted[ELIGIBLE_LEADER_REPLICAS_VERSION] > 0)

    def _eligible_leader_records(self, *, enabled: bool) -> Iterator[VersionedRecord]:
        """Return the records that keep ELR consistent (KIP-966): one minimum for all nodes, no lists once disabled."""
        if not enabled:
            if self._state.image.features.elr_enabled:
                yield from eligible_leaders_disabled(self._state)
            return
        configs = self._state.image.configs
        if MIN_INSYNC_REPLICAS not in configs.cluster_default():
            value = self._state.schema.topic_value(MIN_INSYNC_REPLICAS, ConfigLayers({}, {}, {}))
            yield config_record(ConfigResource(ResourceType.BROKER, CLUSTER_DEFAULT), MIN_INSYNC_REPLICAS, value)
        for name in configs.names(ResourceType.BROKER):
            if name != CLUSTER_DEFAULT and MIN_INSYNC_REPLICAS in configs.of(ResourceType.BROKER, name):
                yield config_record(ConfigResource(ResourceType.BROKER, name), MIN_INSYNC_REPLICAS, None)


def _refusal(change: FeatureChange, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION, f"feature {change.feature} cannot be set to level {change.level}: {reason}"
    )
