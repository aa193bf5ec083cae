"""Packs carry each row to the sections that it concerns, after a summary."""

import pyarrow.compute as pc
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'ottla[spark]'")

from spark_jobs.metadata.log_rows import FROM_SNAPSHOT, LOG_ROWS, section_rows
from spark_jobs.metadata.summary import Summary, summarize
from spark_jobs.metadata_source.packed import HEAD, NOTHING, PACKS, packs, unpacked
from tests.spark_jobs.metadata.logs import EveryHistory, Log


@pytest.fixture(scope="module")
def log() -> Log:
    return Log.of(EveryHistory(3, 60).batches, 3)


def test_every_row_is_in_the_packs_of_the_sections_that_it_concerns(log: Log) -> None:
    rows = log.rows(0, len(log.data)).combine_chunks()
    (batch,) = rows.to_batches()
    (found,) = packs([batch, batch.slice(0, 0)])
    assert found.schema == PACKS
    head, *rest = found.to_pylist()
    summary = summarize(rows)
    assert (head["section"], head["first"], Summary.from_json(head["content"])) == (HEAD, 0, summary)
    assert [pack["section"] for pack in rest] == list(summary.sections)
    assert {pack["first"] for pack in rest} == {NOTHING}
    for pack in rest:
        expected = section_rows(rows, pack["section"]).sort_by("offset")
        assert unpacked([pack["content"]]).sort_by("offset").equals(expected), pack["section"]


def test_packs_join_and_no_packs_give_no_rows(log: Log) -> None:
    halves = [log.rows(0, 3).to_batches()[0], log.rows(3, 6).to_batches()[0]]
    contents = [pack["content"] for each in packs(halves) for pack in each.to_pylist() if pack["section"] == 32]
    expected = [section_rows(log.rows(*bounds), 32) for bounds in ((0, 3), (3, 6))]
    assert len(unpacked(contents)) == sum(map(len, expected)) > 0
    assert unpacked([]).equals(LOG_ROWS.empty_table())


def test_snapshot_rows_set_no_first_offset_and_concern_every_section(log: Log) -> None:
    batch = log.rows(0, 3).combine_chunks().to_batches()[0]
    of_snapshot = batch.set_column(
        LOG_ROWS.get_field_index("origin"),
        LOG_ROWS.field("origin"),
        pc.add(batch.column("origin"), FROM_SNAPSHOT).cast(LOG_ROWS.field("origin").type),
    )
    (found,) = packs([of_snapshot])
    assert found.column("first").to_pylist() == [NOTHING] * 34
    assert found.column("section").to_pylist() == [HEAD, *range(33)]
