"""An Ottla broker starts from a store's snapshot that an Apache Kafka leader does not have but can validate."""

import hashlib
import json
from pathlib import Path

import pytest

from broker.metadata.snapshot.codec import read_snapshot
from broker.metadata.snapshot.manifest import SnapshotManifest
from storage.log_snapshots import parse_checkpoint_name
from tests.support.kafka.apache_kafka import unavailable_reason
from tests.support.kafka.kraft_nodes import PATIENCE_S, KraftNode, KraftNodes, Make, until
from tests.support.processes.ottla_node import run_ottla

pytestmark = pytest.mark.interop

OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "2000", "metadata.max.idle.interval.ms": "0"}


def test_broker_imports_a_snapshot_validated_by_a_kafka_leader(tmp_path: Path) -> None:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    offers = tmp_path / "offers"
    offers.mkdir()
    with KraftNodes([KraftNode(tmp_path / "controller", Make.APACHE, 1, settings=OFTEN)]) as nodes:
        nodes.format_dynamic()
        nodes.start()
        for number in range(30):
            nodes.change(str(1000 + number))
        theirs = until(lambda: nodes.leader().snapshots, PATIENCE_S, nodes)
        first = nodes.join(KraftNode(tmp_path / "first", Make.OTTLA, 11, "broker"))
        nodes.change("2000")
        nodes.caught_up()
        told = run_ottla("metadata-quorum", "--bootstrap-server", first.address, "snapshot", "--json").stdout
        snapshot = first.metadata / str(json.loads(told)["file"])
        assert snapshot.name > theirs[-1].name
        assert snapshot.name not in [each.name for each in nodes.leader().snapshots]
        manifest = offer(offers, snapshot, nodes.cluster_id)
        settings = {"ottla.metadata.snapshot.import.uri": str(offers)}
        second = nodes.join(KraftNode(tmp_path / "second", Make.OTTLA, 12, "broker", settings))
        nodes.caught_up()
        assert f"A metadata snapshot was imported file={manifest.file}" in second.log_text
        assert "is refused" not in second.log_text
        assert (second.metadata / manifest.file).read_bytes() == snapshot.read_bytes()


def offer(store: Path, snapshot: Path, cluster_id: str) -> SnapshotManifest:
    content, id = snapshot.read_bytes(), parse_checkpoint_name(snapshot.name)
    assert id is not None
    read = read_snapshot(content)
    manifest = SnapshotManifest(
        cluster_id=cluster_id,
        end_offset=id.end_offset,
        epoch=id.epoch,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        records=len(read.records),
        last_contained_log_timestamp=read.last_timestamp_ms,
    )
    (store / manifest.file).write_bytes(content)
    (store / manifest.name).write_bytes(manifest.to_json())
    return manifest
