"""Nodes that start from snapshots in a store: a wiped node, a new node, and snapshots that nodes refuse."""

import hashlib
import json
import shutil
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker.metadata.snapshot.codec import read_snapshot
from broker.metadata.snapshot.manifest import SnapshotManifest
from protocol.ids import LeaderEpoch
from protocol.records.batch import iter_headers
from storage.log_snapshots import CheckpointId, parse_checkpoint_name
from storage.tiered.stores.s3 import S3Store
from tests.support.kafka.kraft_nodes import until
from tests.support.processes import joining_node
from tests.support.processes.broker_cluster import ClusterNode
from tests.support.processes.joining_node import line_with
from tests.support.processes.ottla_cluster import OttlaCluster
from tests.support.processes.s3_server import BUCKET, REGION, S3Server, unavailable_reason

pytestmark = pytest.mark.integration

TIMEOUT_S = 60
RECEIVED = "ottla_metadata_snapshots_received_total"
EPOCH_AT = 12
"""Position of the leader epoch in a batch, outside the range of its checksum."""


class ImportCluster:
    """A three-node cluster whose nodes import snapshots from the directory `offers`."""

    def __init__(self, directory: Path) -> None:
        self.offers = directory / "offers"
        self.offers.mkdir()
        self.directory = directory
        settings = {
            "ottla.metadata.snapshot.import.uri": self.offers.as_uri(),
            "metadata.max.idle.interval.ms": "0",
            "controller.quorum.election.timeout.ms": "500",
        }
        self.cluster = OttlaCluster(directory / "cluster", settings=settings)
        self.topics = 0

    def create_topics(self, count: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        names = [f"topic-{self.topics + number}" for number in range(count)]
        self.topics += count
        for done in admin.create_topics([NewTopic(name, 2) for name in names]).values():
            done.result(TIMEOUT_S)

    def clear(self) -> None:
        for path in self.offers.iterdir():
            path.unlink()

    def offer(self, id: CheckpointId, content: bytes, *, cluster_id: str | None = None) -> str:
        """Write a snapshot and its manifest as the Spark job does. Return the snapshot's file name."""
        manifest = manifest_of(id, content, cluster_id or joining_node.cluster_id(self.cluster))
        for name, data in ((manifest.file, content), (manifest.name, manifest.to_json())):
            (self.offers / name).write_bytes(data)
        return manifest.file

    def follower(self) -> int:
        return (self.cluster.leader_index() + 1) % 3

    def node(self, node_id: int, uri: str, *, timeout_ms: int = 60_000) -> ClusterNode:
        settings = {
            "ottla.metadata.snapshot.import.uri": uri,
            "ottla.metadata.snapshot.import.timeout.ms": str(timeout_ms),
        }
        return joining_node.joining_node(self.cluster, self.directory, node_id, settings)

    def wait_for_log_line(self, index: int, *words: str) -> str:
        """Return a line of a node's log that contains all words."""
        return until(lambda: line_with(self.cluster.log_text(index), *words), TIMEOUT_S)


def manifest_of(id: CheckpointId, content: bytes, cluster_id: str) -> SnapshotManifest:
    read = read_snapshot(content)
    return SnapshotManifest(
        cluster_id=cluster_id,
        end_offset=id.end_offset,
        epoch=id.epoch,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        records=len(read.records),
        last_contained_log_timestamp=read.last_timestamp_ms,
    )


def id_of(path: Path) -> CheckpointId:
    id = parse_checkpoint_name(path.name)
    assert id is not None
    return id


def with_epoch(content: bytes, epoch: int) -> bytes:
    changed = bytearray(content)
    for position, _ in iter_headers(content):
        changed[position + EPOCH_AT : position + EPOCH_AT + 4] = epoch.to_bytes(4, "big")
    return bytes(changed)


@pytest.fixture(scope="module")
def import_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImportCluster]:
    made = ImportCluster(tmp_path_factory.mktemp("import"))
    with made.cluster:
        made.create_topics(20)
        yield made


def test_wiped_node_imports_snapshot_and_serves_it(import_cluster: ImportCluster) -> None:
    """Check also that the node's next snapshot equals the other nodes' snapshots byte for byte."""
    cluster = import_cluster.cluster
    index = import_cluster.follower()
    taken = cluster.cut_equal_snapshots()[index]
    content, id = taken.read_bytes(), id_of(taken)
    file = import_cluster.offer(id, content)
    import_cluster.create_topics(2)  # the node fetches the rest of the log from the leader
    since = cluster.wipe(index)
    cluster.wait_ready(index, since)
    import_cluster.wait_for_log_line(index, "A metadata snapshot was imported", file)
    assert (cluster.metadata_directory(index) / file).read_bytes() == content
    until(lambda: cluster.directory_id(index) in json.dumps(cluster.quorum()["currentVoters"]), TIMEOUT_S)
    after = [path.read_bytes() for path in cluster.cut_equal_snapshots()]
    assert len(set(after)) == 1
    assert b"topic-21" in after[0]
    import_cluster.clear()
    lead(cluster, index)
    fresh = import_cluster.node(11, import_cluster.offers.as_uri())
    with fresh:
        assert fresh.metric(RECEIVED, source="leader") == 1
        assert fresh.metric(RECEIVED, source="store") == 0
        assert b"topic-21" in next((fresh.data / "__cluster_metadata-0").glob("0*.checkpoint")).read_bytes()


def lead(cluster: OttlaCluster, index: int) -> None:
    """Kill leaders until the given node leads. The third node is suspended, so that it cannot stand for election."""
    deadline = time.monotonic() + TIMEOUT_S
    while (before := cluster.quorum())["leaderId"] != index + 1:
        assert time.monotonic() < deadline
        leader = int(before["leaderId"]) - 1
        with cluster.paused(3 - leader - index):
            since = cluster.kill(leader)
            until(partial(is_led, cluster, index, since=int(before["leaderEpoch"])), TIMEOUT_S)
        cluster.wait_ready(leader, since)


def is_led(cluster: OttlaCluster, index: int, *, since: int) -> bool:
    """Whether this node knows of a leader in an epoch after `since`."""
    status = cluster.quorum(cluster.address(index))
    return int(status["leaderId"]) > 0 and int(status["leaderEpoch"]) > since


def test_invalid_snapshots_are_refused_and_fetched_from_the_leader(import_cluster: ImportCluster) -> None:
    import_cluster.clear()
    newest = import_cluster.cluster.cut_equal_snapshots()[0]
    import_cluster.create_topics(3)
    content, (end, epoch) = newest.read_bytes(), id_of(newest)
    damaged = bytearray(content)
    damaged[-1] ^= 1  # a byte that the checksum of its batch covers
    corrupt = import_cluster.offer(CheckpointId(end, epoch), content)
    (import_cluster.offers / corrupt).write_bytes(damaged)
    foreign = import_cluster.offer(CheckpointId(end + 1, epoch), content, cluster_id="Kl4BjzYmTn6OJy1vG5itzw")
    stray = import_cluster.offer(CheckpointId(end + 2, LeaderEpoch(0)), with_epoch(content, 0))
    ahead = import_cluster.offer(CheckpointId(end + 100_000, epoch), content)
    (import_cluster.offers / f"{end + 3:020d}-{epoch:010d}.json").write_bytes(b"[" * 10_000)
    fresh = import_cluster.node(12, import_cluster.offers.as_uri())
    with fresh:
        log = fresh.log_text
        refused = {
            name: line_with(log, "A metadata snapshot is refused", name) for name in (corrupt, foreign, stray, ahead)
        }
        assert "damaged" in refused[corrupt], log[-6000:]
        assert "its cluster id is Kl4BjzYmTn6OJy1vG5itzw" in refused[foreign]
        assert "the leader" in refused[stray]
        assert "ahead of the committed log" in refused[ahead]
        assert "not JSON" in line_with(log, "A metadata snapshot is refused", f"{end + 3:020d}")
        assert log.count("is refused") == 5
        assert "Traceback" not in log
        assert fresh.metric(RECEIVED, source="leader") == 1
        assert fresh.metric(RECEIVED, source="store") == 0


def test_unreachable_store_is_logged_and_snapshot_fetched_from_the_leader(import_cluster: ImportCluster) -> None:
    fresh = import_cluster.node(13, "s3://nowhere?endpoint=http://127.0.0.1:1&region=x")
    with fresh:
        assert line_with(fresh.log_text, "WARNING", "The store of metadata snapshots cannot be used", "s3://nowhere")
        assert fresh.metric(RECEIVED, source="leader") == 1


def test_hanging_store_delays_start_for_a_bounded_time(import_cluster: ImportCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # accepts connections and never responds
        uri = f"s3://nowhere?endpoint=http://127.0.0.1:{hanging.getsockname()[1]}&region=x"
        node = import_cluster.node(16, uri, timeout_ms=1_000)
        with node:
            line = line_with(node.log_text, "WARNING", "The store of metadata snapshots")
            assert "is too slow" in line or "cannot be used" in line
            assert node.metric(RECEIVED, source="leader") == 1
            begun = time.monotonic()
            assert node.terminate() == 0
            assert time.monotonic() - begun < 30


def test_new_node_imports_snapshot_from_a_bucket(
    import_cluster: ImportCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    newest = import_cluster.cluster.cut_equal_snapshots()[0]
    content, id = newest.read_bytes(), id_of(newest)
    with S3Server(tmp_path) as server:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
        manifest = manifest_of(id, content, joining_node.cluster_id(import_cluster.cluster))
        store = S3Store(server.settings)
        store.put(f"meta/data/{manifest.file}", [content])
        store.put(f"meta/data/{manifest.name}", [manifest.to_json()])
        store.close()
        uri = f"s3a://{BUCKET}/meta/data?endpoint={server.endpoint}&region={REGION}&path-style=true"
        fresh = import_cluster.node(14, uri)
        with fresh:
            assert line_with(
                fresh.log_text, "A metadata snapshot was imported", manifest.file, f"s3://{BUCKET}/meta/data/"
            )
            assert fresh.metric(RECEIVED, source="leader") == 0
            assert fresh.metric(RECEIVED, source="store") == 1
            assert (fresh.data / "__cluster_metadata-0" / manifest.file).read_bytes() == content


def test_invalid_store_uri_stops_the_start(import_cluster: ImportCluster) -> None:
    node = import_cluster.node(15, "s3://key:sesame@bucket/x")
    with pytest.raises(AssertionError, match=r"ottla\.metadata\.snapshot\.import\.uri: an s3:// URI must not contain"):
        node.start()
    assert "sesame" not in node.log_text
    shutil.rmtree(node.directory)
