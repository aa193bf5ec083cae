"""Whether a place for snapshots is this cluster's: looked at before anything there is written or removed."""

from spark_jobs.metadata_snapshots.snapshot_store import ObjectSnapshotStore
from spark_jobs.metadata_snapshots.state_store import StateStore
from spark_jobs.metadata_source.metadata_log import SourceRefused
from storage.tiered.loading.store_uri import StoreUri


def check_out(out: StoreUri, cluster_id: str) -> None:
    """Raises SourceRefused if the state or the newest snapshot is of another cluster, InvalidCommit if the state is of
    another version of this program, and as the store does.
    """
    for found in (StateStore(out).newest_commit(), ObjectSnapshotStore(out).latest()):
        if found is not None and found.cluster_id != cluster_id:
            raise SourceRefused(
                f"{out} holds what was read from cluster {found.cluster_id}, and the brokers are of {cluster_id}."
            )
