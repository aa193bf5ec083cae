"""The check that a snapshot location belongs to this cluster, before anything there is written or removed."""

from spark_jobs.metadata_snapshots.snapshot_store import ObjectSnapshotStore
from spark_jobs.metadata_snapshots.state_store import StateStore
from spark_jobs.metadata_source.metadata_log import SourceRefused
from storage.tiered.loading.store_uri import StoreUri


def check_out(out: StoreUri, cluster_id: str) -> None:
    """Raise SourceRefused if the state or the newest snapshot belongs to another cluster.

    Raises InvalidCommit if another version of this program wrote the state, and the exceptions of the store.
    """
    for found in (StateStore(out).newest_commit(), ObjectSnapshotStore(out).latest()):
        if found is not None and found.cluster_id != cluster_id:
            raise SourceRefused(
                f"{out} belongs to cluster {found.cluster_id}, but the brokers belong to {cluster_id};"
                " use another --out."
            )
