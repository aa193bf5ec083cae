"""State and snapshots in a bucket of a real S3 server: the same code, the same bytes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.metadata.snapshot.manifest import LATEST
from spark_jobs import store_directory
from spark_jobs.metadata_snapshots.snapshot_store import ObjectSnapshotStore
from spark_jobs.metadata_snapshots.state_store import StateStore
from storage.tiered.loading.store_uri import StoreUri, parse_store_uri
from tests.spark_jobs.metadata.logs import EveryHistory, Log
from tests.spark_jobs.metadata_snapshots.test_state import commit, fold, node_snapshot
from tests.support.processes.s3_server import BUCKET, REGION, S3Server, unavailable_reason

pytestmark = pytest.mark.integration


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreUri]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with S3Server(tmp_path) as server:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
        found = parse_store_uri(f"s3a://{BUCKET}/a/b?endpoint={server.endpoint}&region={REGION}&path-style=true")
        yield found
        store_directory.opened(found).store.close()
        store_directory.opened.cache_clear()


def test_snapshot_is_written_to_and_read_from_a_bucket(uri: StoreUri) -> None:
    log = Log.of(EveryHistory(3, 40).batches, 3)
    store, snapshots = StateStore(uri), ObjectSnapshotStore(uri)
    encoding, _ = fold(store, log.rows(0, len(log.data)))
    for section in encoding.sections:
        encoding.encode(section)
    manifest = snapshots.write("x", encoding.end, encoding.context.epoch, encoding.pieces())
    encoding.remove()
    assert b"".join(snapshots.pieces(manifest)) == node_snapshot(log)
    assert snapshots.latest() == snapshots.manifest_at(encoding.end) == manifest
    store.write_commit(commit(encoding.end, files=encoding.files))
    kept = {found.key for found in store.listed()}
    assert kept == {*encoding.files.values(), commit(encoding.end).name}
    store.remove_commits(store.commits(), [])
    assert {found.key for found in StateStore(uri, "").listed()} == {manifest.file, manifest.name, LATEST}
