"""The first records of a new active controller: the bootstrap of an empty log, or the end of an open transaction."""

from collections.abc import Sequence

from broker.metadata.controller.state import MIN_INSYNC_REPLICAS
from broker.metadata.image.config_image import CLUSTER_DEFAULT, ConfigResource, ResourceType, config_record
from broker.metadata.image.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from broker.metadata.image.loader import LoaderState
from broker.metadata.image.metadata_version import METADATA_VERSION, MetadataVersion
from broker.metadata.image.records import InvalidMetadata, VersionedRecord
from protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)

_FAILOVER_REASON = "Controller failover"
_BOOTSTRAP_NAME = "Bootstrap records"


def activation_records(
    log: LoaderState, bootstrap: Sequence[VersionedRecord], min_insync_replicas: str
) -> list[VersionedRecord]:
    """Return the records to write first. An empty log gets `bootstrap`, in a metadata transaction if its level allows.

    With eligible leader replicas the cluster-wide `min.insync.replicas` is pinned in the log, so that every node elects
    by the same value. Raises InvalidMetadata for a bootstrap or a log without a metadata.version.
    """
    aborts = [VersionedRecord(AbortTransactionRecord(reason=_FAILOVER_REASON), 0)] if log.in_transaction else []
    if (
        log.in_transaction
        and log.image.features.metadata_level
        and not log.image.features.version.supports_transactions
    ):
        raise InvalidMetadata("a metadata transaction is open at a metadata.version without transactions")
    if log.has_records and not (log.in_transaction and log.image.is_empty):
        if log.image.features.metadata_level is None:
            raise InvalidMetadata("the metadata log holds records but no metadata.version")
        return aborts
    levels = {record.name: record.feature_level for record, _ in bootstrap if isinstance(record, FeatureLevelRecord)}
    if METADATA_VERSION not in levels:
        raise InvalidMetadata("the bootstrap records hold no metadata.version")
    records = list(bootstrap)
    if levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION):
        default = ConfigResource(ResourceType.BROKER, CLUSTER_DEFAULT)
        records.append(config_record(default, MIN_INSYNC_REPLICAS, min_insync_replicas))
    if not MetadataVersion(levels[METADATA_VERSION]).supports_transactions:
        return records
    begin = VersionedRecord(BeginTransactionRecord(name=_BOOTSTRAP_NAME), 0)
    return [*aborts, begin, *records, VersionedRecord(EndTransactionRecord(), 0)]
