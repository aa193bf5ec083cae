"""The settings of share groups, from the node's configuration and the cluster's metadata."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.config.group_config import group_values
from broker.groups.consumer.environment import MemberIntervals
from broker.groups.share.assignor import ShareAssignor, SimpleAssignor
from broker.groups.share.environment import ShareGroupEnvironment
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.features import SHARE_VERSION
from broker.metadata.image.metadata_image import MetadataImage
from broker.runtime.coordinators.cluster_topics import ImageTopics
from storage.tiered.loading.import_paths import imported, made

_ASSIGNORS_KEY = "group.share.assignors"
_KNOWN: Mapping[str, Callable[[], ShareAssignor]] = {
    SimpleAssignor.name: SimpleAssignor,
    "org.apache.kafka.coordinator.group.assignor.SimpleAssignor": SimpleAssignor,
}


def share_group_environment(config: BrokerConfig, image: Callable[[], MetadataImage]) -> ShareGroupEnvironment:
    """Return the settings and look-ups. Raise ConfigError for an assignor that cannot be loaded."""
    return ShareGroupEnvironment(
        max_size=config.group_share_max_size,
        initialize_retry_interval_ms=config.group_share_initialize_retry_interval_ms,
        topics=lambda: ImageTopics(image()),
        intervals=lambda group_id: _intervals(config, image(), group_id),
        assignor=load_share_assignor(config.group_share_assignors),
    )


def load_share_assignor(names: Sequence[str]) -> ShareAssignor:
    """Return the only assignor, by its name or its import path. Raise ConfigError."""
    if len(names) != 1:
        message = f"{_ASSIGNORS_KEY} has {len(names)} assignors but must have exactly one."
        raise ConfigError(_ASSIGNORS_KEY, message)
    (name,) = names
    known = _KNOWN.get(name)
    if known is not None:
        return known()
    try:
        factory = imported(_ASSIGNORS_KEY, name, None, SimpleAssignor.name)
        return cast(ShareAssignor, made(_ASSIGNORS_KEY, name, factory))
    except ValueError as error:
        raise ConfigError(_ASSIGNORS_KEY, str(error)) from error


def serves_share_groups(config: BrokerConfig, image: MetadataImage) -> bool:
    """Whether the cluster's share.version, or this broker's settings, allow share groups."""
    return config.group_share_enable or image.features.levels.get(SHARE_VERSION, 0) >= 1


def _intervals(config: BrokerConfig, image: MetadataImage, group_id: str) -> MemberIntervals:
    """Return the group's own times, within the bounds of this broker, which may have changed since."""
    overrides = image.configs.of(ResourceType.GROUP, group_id)
    if not overrides:
        return MemberIntervals(config.group_share_session_timeout_ms, config.group_share_heartbeat_interval_ms)
    values = group_values(overrides, config)
    session_ms = cast(int, values["share.session.timeout.ms"])
    heartbeat_ms = cast(int, values["share.heartbeat.interval.ms"])
    return MemberIntervals(
        _within(config.group_share_min_session_timeout_ms, session_ms, config.group_share_max_session_timeout_ms),
        _within(
            config.group_share_min_heartbeat_interval_ms, heartbeat_ms, config.group_share_max_heartbeat_interval_ms
        ),
    )


def _within(lowest: int, value: int, highest: int) -> int:
    return max(lowest, min(value, highest))
