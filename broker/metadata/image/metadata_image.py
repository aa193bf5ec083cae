"""The whole of the cluster's metadata at one offset, immutable: what everybody reads and only replay produces."""

from collections.abc import Iterator
from typing import NamedTuple

from broker.metadata.image.cluster_image import ClusterImage
from broker.metadata.image.config_image import ConfigsImage
from broker.metadata.image.features import FeaturesImage
from broker.metadata.image.producer_id_image import ProducerIdsImage
from broker.metadata.image.quota_image import ClientQuotasImage
from broker.metadata.image.records import VersionedRecord
from broker.metadata.image.security_image import AclsImage, DelegationTokensImage, ScramImage
from broker.metadata.image.topic_image import TopicsImage


class Provenance(NamedTuple):
    """Where in the log an image stands: its last record's offset (-1 before any), that record's epoch and time.

    `is_batch_aligned` is false where the last record is not the last of its batch, because a metadata transaction
    begins in the middle: no snapshot may end there.
    """

    offset: int = -1
    epoch: int = 0
    timestamp_ms: int = 0
    is_batch_aligned: bool = True


class MetadataImage(NamedTuple):
    """Nine parts and where they stand in the log. Two images with equal parts and provenance are equal."""

    provenance: Provenance = Provenance()
    features: FeaturesImage = FeaturesImage()
    brokers: ClusterImage = ClusterImage()
    topics: TopicsImage = TopicsImage()
    configs: ConfigsImage = ConfigsImage()
    client_quotas: ClientQuotasImage = ClientQuotasImage()
    producer_ids: ProducerIdsImage = ProducerIdsImage()
    acls: AclsImage = AclsImage()
    scram: ScramImage = ScramImage()
    delegation_tokens: DelegationTokensImage = DelegationTokensImage()

    @property
    def offset(self) -> int:
        """Offset of the last record contained, -1 if there is none."""
        return self.provenance.offset

    @property
    def epoch(self) -> int:
        """Leader epoch of the last record contained."""
        return self.provenance.epoch

    @property
    def is_empty(self) -> bool:
        """Whether no record was ever replayed that left a trace."""
        return next(self.write(), None) is None

    def write(self) -> Iterator[VersionedRecord]:
        """Records that replay to an equal image, in the one order that every node writes (KIP-630 snapshots).

        Features come first because the metadata.version decides how the rest is written. Within a part the order is
        by key, so that equal images give equal bytes whatever their history.
        """
        version = self.features.version
        yield from self.features.write()
        yield from self.brokers.write(version)
        yield from self.topics.write(version)
        yield from self.configs.write()
        yield from self.client_quotas.write()
        yield from self.producer_ids.write()
        yield from self.acls.write()
        yield from self.scram.write(version)
        yield from self.delegation_tokens.write(version)


EMPTY_IMAGE = MetadataImage()
