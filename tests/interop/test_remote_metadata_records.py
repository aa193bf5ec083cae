"""Kafka's dump tool prints Ottla's remote log metadata records as Ottla's does."""

from pathlib import Path

import pytest

from broker.cli.main import run
from protocol.ids import LeaderEpoch
from protocol.records.builder import build_value_batch
from storage.tiered.catalog.materialized_metadata import MaterializedMetadata
from storage.tiered.catalog.metadata_records import encode_event
from storage.tiered.segment_metadata import SegmentState
from tests.storage.tiered.catalog.test_metadata_records import DELETE, SEGMENT, UPDATE
from tests.support.kafka.apache_kafka import run_tool, unavailable_reason

pytestmark = pytest.mark.interop

DUMP = "kafka.tools.DumpLogSegments"


def pruning_records() -> list[bytes]:
    """Return the records that a leader writes when it prunes the topic. Kafka must know all of them."""
    metadata = MaterializedMetadata()
    for event in (SEGMENT, UPDATE, DELETE, UPDATE._replace(state=SegmentState.DELETE_STARTED)):
        metadata.apply(event)
    (partition,) = metadata.partitions()
    events, _ = metadata.current_events(partition, 0, 10)
    return [encode_event(event) for event in events]


def test_both_dump_tools_print_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    values = [encode_event(event) for event in (SEGMENT, UPDATE, DELETE, UPDATE._replace(custom_metadata=None))]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(
        build_value_batch(values, 1, base_offset=0, leader_epoch=LeaderEpoch(0))
        + build_value_batch(pruning_records(), 2, base_offset=4, leader_epoch=LeaderEpoch(1))
    )
    options = ("--files", str(path), "--remote-log-metadata-decoder")
    theirs = run_tool(DUMP, *options).splitlines()
    assert run(["dump-log", *options]) == 0
    assert capsys.readouterr().out.splitlines() == theirs
    assert sum("payload: Remote" in line for line in theirs) == 7
