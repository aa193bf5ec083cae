"""The broker's configuration as it is now: the static one under the dynamic layers that the metadata holds."""

from dataclasses import replace

from broker.config.broker_config import BrokerConfig
from broker.config.topic_config import log_config
from broker.logs import EventLog
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from storage.config import LogConfig

_NEVER_TIERED = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata"})

_log = EventLog("broker.config")


class DynamicConfig:
    """Holds `current`. Install it as a metadata publisher before whoever asks it."""

    def __init__(self, static: BrokerConfig) -> None:
        self._static = static
        self.current = static

    def get(self) -> BrokerConfig:
        """The configuration at this moment."""
        return self.current

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take over what changed for this broker or for all of them."""
        if delta.configs is None:
            return
        if any(resource.type == ResourceType.BROKER for resource in delta.configs.changed_resources):
            cluster, broker = image.configs.cluster_default(), image.configs.broker(self._static.node_id)
            self.current, problems = self._static.with_dynamic(cluster=cluster, broker=broker)
            for problem in problems:
                _log.warning("a stored dynamic setting cannot be used", key=problem.key, reason=problem.sentence)

    def log_config(self, image: MetadataImage, topic: str) -> LogConfig:
        """How the logs of a topic are kept. Those of internal ones are never tiered, whatever anybody says."""
        config = log_config(image.configs.topic(topic), self.current)
        return replace(config, remote_storage_enable=False) if topic in _NEVER_TIERED else config
