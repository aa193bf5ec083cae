"""The share partitions of a node, from its configuration and the cluster's metadata (KIP-932)."""

from collections.abc import Callable, Mapping
from typing import cast

from broker.config.broker_config import BrokerConfig
from broker.config.group_config import group_values
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.metadata_image import MetadataImage
from broker.metrics.share import ShareFigures
from broker.net.peer import NetworkClient
from broker.runtime.loop.runtime import Runtime
from broker.runtime.share.led_share_partition import ShareServices
from broker.runtime.share.persister import SharePersister
from broker.runtime.share.share_partitions import SharePartitions
from broker.share.records import ShareLimits
from broker.share.sessions import ShareSessions
from broker.share.settings import OffsetReset, ResetTarget, ShareGroupSettings, parse_offset_reset
from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class SharePart:
    """The share partitions of a node, the sessions of their members, and connections to share coordinators."""

    partitions: SharePartitions
    sessions: ShareSessions
    connections: NetworkClient


def build_shares(
    runtime: Runtime, config: BrokerConfig, image: Callable[[], MetadataImage], connections: NetworkClient
) -> SharePart:
    """Build the share partitions over connections to share coordinators."""
    persister = SharePersister(
        runtime, connections, image, config.inter_broker_listener_name, lambda: config.request_timeout_ms
    )
    limits = ShareLimits(config.group_share_delivery_count_limit, config.group_share_partition_max_record_locks)
    reset = OffsetReset(ResetTarget.LATEST)
    defaults = ShareGroupSettings(
        limits, config.group_share_record_lock_duration_ms, reads_committed=False, reset=reset
    )

    def settings(group_id: str) -> ShareGroupSettings:
        overrides = image().configs.of(ResourceType.GROUP, group_id)
        return _settings(config, limits, overrides) if overrides else defaults

    return SharePart(
        SharePartitions(ShareServices(runtime, persister, settings, ShareFigures())),
        ShareSessions(config.group_share_max_share_sessions),
        connections,
    )


def _settings(config: BrokerConfig, limits: ShareLimits, overrides: Mapping[str, str]) -> ShareGroupSettings:
    values = group_values(overrides, config)
    lock_ms = cast(int, values["share.record.lock.duration.ms"])
    lowest, highest = config.group_share_min_record_lock_duration_ms, config.group_share_max_record_lock_duration_ms
    return ShareGroupSettings(
        limits,
        max(lowest, min(lock_ms, highest)),
        values["share.isolation.level"] == "read_committed",
        parse_offset_reset(str(values["share.auto.offset.reset"])),
    )
