"""The broker's current configuration: its static configuration under the dynamic layers in the metadata."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from cachetools import LRUCache

from broker.config.broker_config import BrokerConfig
from broker.config.topic_config import log_config
from broker.logs import EventLog
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_names import INTERNAL_TOPICS, REMOTE_LOG_METADATA_TOPIC
from storage.config import CleanupPolicy, LogConfig

_NEVER_TIERED = INTERNAL_TOPICS | {REMOTE_LOG_METADATA_TOPIC}
CACHED_LOG_CONFIGS: Final = 128
"""Limit of the parsed log configurations; topics usually have few different sets of overrides."""

_log = EventLog("broker.config")


class DynamicConfig:
    """A metadata publisher that holds `current`. Add it before the publishers that read the configuration."""

    def __init__(self, static: BrokerConfig) -> None:
        self._static = static
        self.current = static
        self._log_configs: LRUCache[Mapping[str, str], LogConfig] = LRUCache(CACHED_LOG_CONFIGS)
        self._log_configs_lock = threading.Lock()
        """Guards the cache and the parsing of a new entry: threads that open logs at the start use both."""

    def get(self) -> BrokerConfig:
        """Return the current configuration."""
        return self.current

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply changed broker configs of this broker and of the cluster default."""
        if delta.configs is None:
            return
        if any(resource.type == ResourceType.BROKER for resource in delta.configs.changed_resources):
            cluster, broker = image.configs.cluster_default(), image.configs.broker(self._static.node_id)
            current, problems = self._static.with_dynamic(cluster=cluster, broker=broker)
            with self._log_configs_lock:
                self.current = current
                self._log_configs.clear()
            for problem in problems:
                _log.warning("A stored dynamic config is invalid and ignored", key=problem.key, reason=problem.sentence)

    def log_config(self, image: MetadataImage, topic: str) -> LogConfig:
        """Return the log configuration of a topic, regardless of its configs where a log must be kept whole.

        Internal topics are never tiered. The remote metadata topic has no retention: the deletion of an old record
        would make brokers forget a live segment.
        """
        config = self._parsed(image.configs.topic(topic))
        if topic in _NEVER_TIERED:
            config = replace(config, remote_storage_enable=False)
        if topic == REMOTE_LOG_METADATA_TOPIC:
            policy = frozenset({CleanupPolicy.DELETE})
            config = replace(config, retention_ms=-1, retention_bytes=-1, cleanup_policy=policy)
        return config

    def _parsed(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return the log configuration for these overrides.

        Topics with equal overrides share it: parsing takes 30 µs, and a new partition asks twice.
        """
        with self._log_configs_lock:
            config = self._log_configs.get(overrides)
            if config is None:
                config = self._log_configs[overrides] = log_config(overrides, self.current)
            return config
