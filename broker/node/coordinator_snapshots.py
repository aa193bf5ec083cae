"""Snapshots of this node's coordinators, from its configuration."""

from typing import NamedTuple

from broker.config.broker_config import BrokerConfig
from broker.groups.replay import GROUP_FOLD
from broker.metadata.image.topic_names import SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from broker.runtime.coordinators.group_coordinator import GROUP_METADATA_TOPIC
from broker.runtime.coordinators.snapshot_maker import SnapshotMaker, SnapshotSettings
from broker.runtime.coordinators.snapshot_store import SnapshotStore
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.runtime import Runtime
from broker.runtime.partitions.registry import Partitions
from broker.share_state.records import SHARE_STATE_FOLD
from broker.transactions.records import TRANSACTION_FOLD

RULES = {
    GROUP_METADATA_TOPIC: GROUP_FOLD,
    TRANSACTION_STATE_TOPIC: TRANSACTION_FOLD,
    SHARE_STATE_TOPIC: SHARE_STATE_FOLD,
}


class CoordinatorSnapshots(NamedTuple):
    """Loads find snapshots in `store`; the node runs `maker.run`. None of both where snapshots are disabled."""

    store: SnapshotStore | None
    maker: SnapshotMaker | None


def build_coordinator_snapshots(
    runtime: Runtime, snapshot_io: BlockingIo, config: BrokerConfig, partitions: Partitions
) -> CoordinatorSnapshots:
    """Build the snapshots of the partitions of internal topics. `snapshot_io` writes them, so that no log waits."""
    if not config.ottla_coordinator_snapshot_enable:
        return CoordinatorSnapshots(None, None)
    store = SnapshotStore(runtime.files, snapshot_io, runtime.clock)
    settings = SnapshotSettings(
        config.ottla_coordinator_snapshot_interval_ms, config.ottla_coordinator_snapshot_min_new_records
    )
    return CoordinatorSnapshots(store, SnapshotMaker(runtime, partitions, store, RULES, settings))
