"""The changes of a run of records. Parts are created on first use; an image shares unchanged parts with its base."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from broker.metadata.image.cluster_image import ClusterDelta
from broker.metadata.image.config_image import ConfigsDelta
from broker.metadata.image.features import FeaturesDelta
from broker.metadata.image.metadata_image import MetadataImage, Provenance
from broker.metadata.image.producer_id_image import ProducerIdsDelta
from broker.metadata.image.quota_image import ClientQuotasDelta
from broker.metadata.image.records import MetadataRecord
from broker.metadata.image.security_image import AclsDelta, DelegationTokensDelta, ScramDelta
from broker.metadata.image.topic_image import TopicsDelta
from protocol.messages import metadata_records as messages


class MetadataDelta:
    """Changes on top of `image`; a part is None until a record changes it.

    Transaction markers never reach a delta: `loader.py` consumes them.
    """

    __slots__ = (
        "acls",
        "brokers",
        "client_quotas",
        "configs",
        "delegation_tokens",
        "features",
        "image",
        "producer_ids",
        "scram",
        "topics",
    )

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.features: FeaturesDelta | None = None
        self.brokers: ClusterDelta | None = None
        self.topics: TopicsDelta | None = None
        self.configs: ConfigsDelta | None = None
        self.client_quotas: ClientQuotasDelta | None = None
        self.producer_ids: ProducerIdsDelta | None = None
        self.acls: AclsDelta | None = None
        self.scram: ScramDelta | None = None
        self.delegation_tokens: DelegationTokensDelta | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no record changed anything."""
        return all(getattr(self, part) is None for part in self.__slots__ if part != "image")

    def replay(self, record: MetadataRecord) -> None:
        """Apply one record. Raises InvalidMetadata or UnsupportedFeatureLevel if it contradicts earlier records."""
        _REPLAY[type(record)](self, record)

    def replay_all(self, records: Iterable[MetadataRecord]) -> None:
        for record in records:
            _REPLAY[type(record)](self, record)

    def apply(self, provenance: Provenance) -> MetadataImage:
        """Return the image after these changes."""
        base = self.image
        return base._replace(
            provenance=provenance,
            features=base.features if self.features is None else self.features.apply(),
            brokers=base.brokers if self.brokers is None else self.brokers.apply(),
            topics=base.topics if self.topics is None else self.topics.apply(),
            configs=base.configs if self.configs is None else self.configs.apply(),
            client_quotas=base.client_quotas if self.client_quotas is None else self.client_quotas.apply(),
            producer_ids=base.producer_ids if self.producer_ids is None else self.producer_ids.apply(),
            acls=base.acls if self.acls is None else self.acls.apply(),
            scram=base.scram if self.scram is None else self.scram.apply(),
            delegation_tokens=(
                base.delegation_tokens if self.delegation_tokens is None else self.delegation_tokens.apply()
            ),
        )

    def _features(self) -> FeaturesDelta:
        if self.features is None:
            self.features = FeaturesDelta(self.image.features)
        return self.features

    def _brokers(self) -> ClusterDelta:
        if self.brokers is None:
            self.brokers = ClusterDelta(self.image.brokers)
        return self.brokers

    def _topics(self) -> TopicsDelta:
        if self.topics is None:
            self.topics = TopicsDelta(self.image.topics)
        return self.topics

    def _configs(self) -> ConfigsDelta:
        if self.configs is None:
            self.configs = ConfigsDelta(self.image.configs)
        return self.configs

    def _client_quotas(self) -> ClientQuotasDelta:
        if self.client_quotas is None:
            self.client_quotas = ClientQuotasDelta(self.image.client_quotas)
        return self.client_quotas

    def _producer_ids(self) -> ProducerIdsDelta:
        if self.producer_ids is None:
            self.producer_ids = ProducerIdsDelta(self.image.producer_ids)
        return self.producer_ids

    def _acls(self) -> AclsDelta:
        if self.acls is None:
            self.acls = AclsDelta(self.image.acls)
        return self.acls

    def _scram(self) -> ScramDelta:
        if self.scram is None:
            self.scram = ScramDelta(self.image.scram)
        return self.scram

    def _delegation_tokens(self) -> DelegationTokensDelta:
        if self.delegation_tokens is None:
            self.delegation_tokens = DelegationTokensDelta(self.image.delegation_tokens)
        return self.delegation_tokens

    def _remove_topic(self, record: messages.RemoveTopicRecord) -> None:
        """Remove a topic and its configs, which are keyed by name: a later topic of that name must not inherit them."""
        name = self._topics().remove_topic(record)
        self._configs().remove_topic(name)


def _ignored(_delta: MetadataDelta, _record: Any) -> None:
    """Ignore a record without effect on the image; see `records.IgnoredRecord` for the reasons."""


_REPLAY: Final[Mapping[type, Callable[[MetadataDelta, Any], None]]] = {
    messages.FeatureLevelRecord: lambda delta, record: delta._features().replay(record),
    messages.RegisterBrokerRecord: lambda delta, record: delta._brokers().register_broker(record),
    messages.UnregisterBrokerRecord: lambda delta, record: delta._brokers().unregister_broker(record),
    messages.BrokerRegistrationChangeRecord: lambda delta, record: delta._brokers().change_broker(record),
    messages.FenceBrokerRecord: lambda delta, record: delta._brokers().fence(record),
    messages.UnfenceBrokerRecord: lambda delta, record: delta._brokers().unfence(record),
    messages.RegisterControllerRecord: lambda delta, record: delta._brokers().register_controller(record),
    messages.TopicRecord: lambda delta, record: delta._topics().create_topic(record),
    messages.PartitionRecord: lambda delta, record: delta._topics().add_partition(record),
    messages.PartitionChangeRecord: lambda delta, record: delta._topics().change_partition(record),
    messages.RemoveTopicRecord: MetadataDelta._remove_topic,
    messages.ClearElrRecord: lambda delta, record: delta._topics().clear_elr(record),
    messages.ConfigRecord: lambda delta, record: delta._configs().replay(record),
    messages.ClientQuotaRecord: lambda delta, record: delta._client_quotas().replay(record),
    messages.ProducerIdsRecord: lambda delta, record: delta._producer_ids().replay(record),
    messages.AccessControlEntryRecord: lambda delta, record: delta._acls().add(record),
    messages.RemoveAccessControlEntryRecord: lambda delta, record: delta._acls().remove(record),
    messages.UserScramCredentialRecord: lambda delta, record: delta._scram().add(record),
    messages.RemoveUserScramCredentialRecord: lambda delta, record: delta._scram().remove(record),
    messages.DelegationTokenRecord: lambda delta, record: delta._delegation_tokens().add(record),
    messages.RemoveDelegationTokenRecord: lambda delta, record: delta._delegation_tokens().remove(record),
    messages.NoOpRecord: _ignored,
    messages.ZkMigrationStateRecord: _ignored,
}
