"""The immutable image of all cluster metadata at one offset, produced by replay only."""

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
from protocol.ids import EPOCH_ZERO, LeaderEpoch


class Provenance(NamedTuple):
    """The position of an image in the log: offset (-1 before any record), leader epoch and timestamp of its last
    record.

    `is_batch_aligned` is false if the last record is not the last of its batch, because a metadata transaction begins
    in the middle; no snapshot may end there.
    """

    offset: int = -1
    epoch: LeaderEpoch = EPOCH_ZERO
    timestamp_ms: int = 0
    is_batch_aligned: bool = True


class MetadataImage(NamedTuple):
    """Nine parts and their position in the log. Images with equal parts and provenance are equal."""

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
        """The offset of the last contained record, -1 without records."""
        return self.provenance.offset

    @property
    def epoch(self) -> LeaderEpoch:
        """The leader epoch of the last contained record."""
        return self.provenance.epoch

    @property
    def is_empty(self) -> bool:
        """Whether the image has no content."""
        return next(self.write(), None) is None

    def write(self) -> Iterator[VersionedRecord]:
        """Yield records that replay to an equal image, in the canonical order of snapshots (KIP-630).

        Features come first because metadata.version decides the versions of all other records. Each part is ordered by
        key, so that equal images give equal bytes whatever their history.
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
