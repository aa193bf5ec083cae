"""Every metadata record type is folded, or stops the job."""

import json

import pyarrow as pa
import pytest

from broker.metadata.image.records import METADATA_RECORDS, MetadataRecord, encode_record
from protocol.messages import metadata_records as messages
from spark_jobs.metadata import frame_heads
from spark_jobs.metadata.fold_context import FoldContext
from spark_jobs.metadata.folded_records import (
    IGNORED_RECORDS,
    REGISTRY_RECORDS,
    TOPIC_RECORDS,
    TRANSACTION_RECORDS,
    supported_versions,
)
from spark_jobs.metadata.frame_heads import UnknownRecord
from spark_jobs.metadata.log_rows import REGISTRY
from spark_jobs.metadata.registry import Registry, fold_registry
from spark_jobs.metadata.sections import fold_section
from spark_jobs.metadata.summary import summarize
from spark_jobs.metadata_tables.registry_tables import tables_of_registry
from spark_jobs.metadata_tables.schemas import CHANGES
from tests.broker.metadata.record_samples import IGNORED, IMAGE_SAMPLES, MARKERS, Sample, sample_name
from tests.spark_jobs.metadata.test_registry import without_partitions
from tests.spark_jobs.metadata.test_sections import rows_of_frames

ALL = FoldContext(0, 10_000, with_changes=True)
TOPIC_SAMPLES = [each for each in IMAGE_SAMPLES if type(each.record) in TOPIC_RECORDS]
REGISTRY_SAMPLES = [each for each in IMAGE_SAMPLES if type(each.record) in REGISTRY_RECORDS]
SECTION = 0x42 >> 3


def in_rows(*records: MetadataRecord) -> pa.Table:
    """Return rows of the log with these records, in their newest versions, from offset 0 on."""
    return rows_of_frames(*(encode_record(each, each.MAX_VERSION) for each in records))


def test_every_record_type_is_supported_with_every_version_that_the_node_decodes() -> None:
    supported = supported_versions()
    assert set(supported) == set(METADATA_RECORDS)
    assert {type: (low, high) for type, (low, high) in supported.items()} == {
        each: (each.MIN_VERSION, each.MAX_VERSION) for each in METADATA_RECORDS
    }


def test_ignored_and_transaction_records_are_those_of_the_node() -> None:
    assert tuple(IGNORED_RECORDS) == IGNORED
    assert set(TRANSACTION_RECORDS) == set(MARKERS)
    assert all(IGNORED_RECORDS.values())


@pytest.mark.parametrize("sample", REGISTRY_SAMPLES, ids=sample_name)
@pytest.mark.parametrize("with_changes", [True, False])
def test_registry_fold_applies_and_reports_every_record(sample: Sample, with_changes: bool) -> None:
    rows = in_rows(*sample.before, sample.record)
    result = fold_registry(None, rows, FoldContext(0, 10_000, with_changes=with_changes))
    assert result.registry.image == without_partitions(sample.image)
    if with_changes:
        last = result.changes[-1]
        assert last.offset == len(sample.before)
        (written,) = tables_of_registry([last])[CHANGES].to_pylist()
        assert json.loads(written["before"] or "{}") != json.loads(written["after"] or "{}")


@pytest.mark.parametrize("sample", TOPIC_SAMPLES, ids=sample_name)
def test_section_fold_applies_and_reports_every_record(sample: Sample) -> None:
    rows = in_rows(*sample.before, sample.record)
    before = fold_section(SECTION, None, in_rows(*sample.before), ALL)
    after = fold_section(SECTION, None, rows, ALL)
    assert after.state != before.state
    assert len(sample.before) in after.changes.column("offset").to_pylist()


@pytest.mark.parametrize("sample", IMAGE_SAMPLES, ids=sample_name)
def test_summary_names_a_section_for_every_record(sample: Sample) -> None:
    expected = SECTION if type(sample.record) in TOPIC_RECORDS else REGISTRY
    assert expected in summarize(in_rows(sample.record)).sections


@pytest.mark.parametrize("record", [each() for each in IGNORED], ids=lambda record: type(record).__name__)
def test_ignored_records_change_nothing(record: MetadataRecord) -> None:
    result = fold_registry(None, in_rows(record), ALL)
    assert result.changes == ()
    assert result.registry.image == Registry().image


def test_record_type_unknown_to_the_node_stops_the_fold() -> None:
    sentence = (
        r"the metadata log holds a record of unknown type \(API key 99, version 0\) at offset 4, which this version of "
        r"Ottla cannot fold; upgrade Ottla and run the job again: it resumes before that record"
    )
    rows = rows_of_frames(b"\x01\x63\x00\x00", base=4)
    for fold in (lambda: fold_registry(None, rows, ALL), lambda: summarize(rows)):
        with pytest.raises(UnknownRecord, match=sentence):
            fold()


def test_record_type_that_only_the_node_knows_stops_the_fold_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type that the broker gained and the fold did not."""
    least, greatest = frame_heads._MIN_VERSIONS.copy(), frame_heads._MAX_VERSIONS.copy()
    key = messages.RegisterControllerRecord.API_KEY
    least[key], greatest[key] = 1, 0
    monkeypatch.setattr(frame_heads, "_MIN_VERSIONS", least)
    monkeypatch.setattr(frame_heads, "_MAX_VERSIONS", greatest)
    rows = in_rows(messages.NoOpRecord(), messages.RegisterControllerRecord(controller_id=1))
    with pytest.raises(UnknownRecord, match=r"RegisterControllerRecord \(API key 27, version 0\) at offset 1"):
        fold_registry(None, rows, ALL)
