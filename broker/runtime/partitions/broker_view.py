"""The brokers of the cluster as the metadata describes them."""

from broker.replication.leader import UNKNOWN_BROKER_EPOCH
from broker.runtime.controller.metadata_cache import MetadataCache
from protocol.ids import BrokerEpoch, BrokerId


class MetadataBrokerView:
    """Implements BrokerView over the latest metadata image."""

    def __init__(self, broker_id: BrokerId, metadata: MetadataCache, *, lag_time_max_ms: int) -> None:
        self.broker_id = broker_id
        self.lag_time_max_ms = lag_time_max_ms
        self._metadata = metadata

    def is_isr_eligible(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> bool:
        broker = self._metadata.image.brokers.get(broker_id)
        return broker is not None and broker.is_active and broker_epoch in (-1, broker.epoch)

    def is_alive(self, broker_id: BrokerId) -> bool:
        broker = self._metadata.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def registered_epoch(self, broker_id: BrokerId) -> BrokerEpoch:
        broker = self._metadata.image.brokers.get(broker_id)
        return UNKNOWN_BROKER_EPOCH if broker is None else broker.epoch
