"""The settings of streams groups, from the node's configuration and the cluster's metadata."""

from collections.abc import Callable, Mapping

from broker.config.broker_config import BrokerConfig
from broker.config.group_config import group_values
from broker.groups.streams.environment import StreamsGroupEnvironment, StreamsGroupSettings
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.features import STREAMS_VERSION
from broker.metadata.image.metadata_image import MetadataImage
from broker.runtime.coordinators.cluster_topics import ImageTopics


def streams_group_environment(config: BrokerConfig, image: Callable[[], MetadataImage]) -> StreamsGroupEnvironment:
    """Return the settings and look-ups."""
    return StreamsGroupEnvironment(
        max_size=config.group_streams_max_size,
        topics=lambda: ImageTopics(image()),
        settings=lambda group_id: _settings(config, image(), group_id),
    )


def serves_streams_groups(config: BrokerConfig, image: MetadataImage) -> bool:
    """Whether the settings and the cluster's streams.version allow streams groups."""
    is_configured = "streams" in config.group_coordinator_rebalance_protocols
    return is_configured and image.features.levels.get(STREAMS_VERSION, 0) >= 1


def _settings(config: BrokerConfig, image: MetadataImage, group_id: str) -> StreamsGroupSettings:
    """Return the group's own settings, within the bounds of this broker, which may have changed since."""
    overrides: Mapping[str, str] = image.configs.of(ResourceType.GROUP, group_id)
    if not overrides:
        return StreamsGroupSettings(
            config.group_streams_session_timeout_ms,
            config.group_streams_heartbeat_interval_ms,
            config.group_streams_initial_rebalance_delay_ms,
            config.group_streams_num_standby_replicas,
        )
    values = {name: value for name, value in group_values(overrides, config).items() if isinstance(value, int)}
    session_ms, interval_ms = values["streams.session.timeout.ms"], values["streams.heartbeat.interval.ms"]
    lowest_ms, highest_ms = (
        config.group_streams_min_heartbeat_interval_ms,
        config.group_streams_max_heartbeat_interval_ms,
    )
    return StreamsGroupSettings(
        _within(config.group_streams_min_session_timeout_ms, session_ms, config.group_streams_max_session_timeout_ms),
        _within(lowest_ms, interval_ms, highest_ms),
        values["streams.initial.rebalance.delay.ms"],
        min(values["streams.num.standby.replicas"], config.group_streams_max_standby_replicas),
    )


def _within(lowest: int, value: int, highest: int) -> int:
    return max(lowest, min(value, highest))
