"""The settings of consumer groups, from the node's configuration and the cluster's metadata."""

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.config.group_config import group_values
from broker.groups.consumer.assignors.assignor import PartitionAssignor
from broker.groups.consumer.assignors.range import RangeAssignor
from broker.groups.consumer.assignors.uniform import UniformAssignor
from broker.groups.consumer.environment import ConsumerGroupEnvironment, MemberIntervals, MigrationPolicy
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.features import GROUP_VERSION
from broker.metadata.image.metadata_image import MetadataImage
from broker.runtime.coordinators.cluster_topics import ImageTopics
from storage.tiered.loading.import_paths import imported, made

_ASSIGNORS_KEY = "group.consumer.assignors"
_KNOWN: Mapping[str, Callable[[], PartitionAssignor]] = {
    UniformAssignor.name: UniformAssignor,
    RangeAssignor.name: RangeAssignor,
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": UniformAssignor,
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": RangeAssignor,
}


def consumer_group_environment(config: BrokerConfig, image: Callable[[], MetadataImage]) -> ConsumerGroupEnvironment:
    """Return the settings and look-ups. Raise ConfigError for an assignor that cannot be loaded."""
    return ConsumerGroupEnvironment(
        max_size=config.group_consumer_max_size,
        classic_max_size=config.group_max_size,
        migration_policy=MigrationPolicy(config.group_consumer_migration_policy.lower()),
        regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        assignors=load_assignors(config.group_consumer_assignors),
        topics=lambda: ImageTopics(image(), has_metadata_topic=config.ottla_cluster_metadata_readable),
        intervals=lambda group_id: _intervals(config, image(), group_id),
    )


def serves_consumer_groups(config: BrokerConfig, image: MetadataImage) -> bool:
    """Whether the settings and the cluster's group.version allow consumer groups."""
    is_configured = "consumer" in config.group_coordinator_rebalance_protocols
    return is_configured and image.features.levels.get(GROUP_VERSION, 0) >= 1


def load_assignors(names: Iterable[str]) -> Mapping[str, PartitionAssignor]:
    """Return the assignors in order, by the names that they give themselves. Raise ConfigError."""
    try:
        found = [_load_assignor(name) for name in names]
    except ValueError as error:
        raise ConfigError(_ASSIGNORS_KEY, str(error)) from error
    by_name = {assignor.name: assignor for assignor in found}
    if len(by_name) < len(found):
        raise ConfigError(_ASSIGNORS_KEY, f"{_ASSIGNORS_KEY} has two assignors of the same name.")
    return by_name


def _load_assignor(name: str) -> PartitionAssignor:
    known = _KNOWN.get(name)
    if known is not None:
        return known()
    factory = imported(_ASSIGNORS_KEY, name, None, "uniform, range")
    return cast(PartitionAssignor, made(_ASSIGNORS_KEY, name, factory))


def _intervals(config: BrokerConfig, image: MetadataImage, group_id: str) -> MemberIntervals:
    """Return the group's own times, within the bounds of this broker, which may have changed since."""
    overrides = image.configs.of(ResourceType.GROUP, group_id)
    if not overrides:
        return MemberIntervals(config.group_consumer_session_timeout_ms, config.group_consumer_heartbeat_interval_ms)
    values = group_values(overrides, config)
    session_ms = cast(int, values["consumer.session.timeout.ms"])
    heartbeat_ms = cast(int, values["consumer.heartbeat.interval.ms"])
    return MemberIntervals(
        _within(config.group_consumer_min_session_timeout_ms, session_ms, config.group_consumer_max_session_timeout_ms),
        _within(
            config.group_consumer_min_heartbeat_interval_ms,
            heartbeat_ms,
            config.group_consumer_max_heartbeat_interval_ms,
        ),
    )


def _within(lowest: int, value: int, highest: int) -> int:
    return max(lowest, min(value, highest))
