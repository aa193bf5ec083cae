"""The broker's current configuration: its static configuration under the dynamic layers in the metadata."""

from dataclasses import replace

from broker.config.broker_config import BrokerConfig
from broker.config.topic_config import log_config
from broker.logs import EventLog
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_names import INTERNAL_TOPICS, REMOTE_LOG_METADATA_TOPIC
from storage.config import CleanupPolicy, LogConfig

_NEVER_TIERED = INTERNAL_TOPICS | {REMOTE_LOG_METADATA_TOPIC}

_log = EventLog("broker.config")


class DynamicConfig:
    """A metadata publisher that holds `current`. Add it before the publishers that read the configuration."""

    def __init__(self, static: BrokerConfig) -> None:
        self._static = static
        self.current = static

    def get(self) -> BrokerConfig:
        """Return the current configuration."""
        return self.current

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply changed broker configs of this broker and of the cluster default."""
        if delta.configs is None:
            return
        if any(resource.type == ResourceType.BROKER for resource in delta.configs.changed_resources):
            cluster, broker = image.configs.cluster_default(), image.configs.broker(self._static.node_id)
            self.current, problems = self._static.with_dynamic(cluster=cluster, broker=broker)
            for problem in problems:
                _log.warning("A stored dynamic config is invalid and ignored", key=problem.key, reason=problem.sentence)

    def log_config(self, image: MetadataImage, topic: str) -> LogConfig:
        """Return the log configuration of a topic, regardless of its configs where a log must be kept whole.

        Internal topics are never tiered. The remote metadata topic has no retention: the deletion of an old record
        would make brokers forget a live segment.
        """
        config = log_config(image.configs.topic(topic), self.current)
        if topic in _NEVER_TIERED:
            config = replace(config, remote_storage_enable=False)
        if topic == REMOTE_LOG_METADATA_TOPIC:
            policy = frozenset({CleanupPolicy.DELETE})
            config = replace(config, retention_ms=-1, retention_bytes=-1, cleanup_policy=policy)
        return config
