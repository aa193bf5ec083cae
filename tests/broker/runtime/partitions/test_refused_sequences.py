"""Sequences refused with a retriable error; the requests that lead to them are in `test_produce.py`."""

import pytest

from broker.runtime.partitions.partition import RecordsRefused
from broker.runtime.partitions.refused_sequences import NOTES_MAX, RefusedSequences
from protocol.errors import ErrorCode
from tests.support.harnesses.data_plane import DataPlane, batch


@pytest.fixture
def node() -> DataPlane:
    node = DataPlane()
    node.create_topic()
    return node


def sequence(number: int, producer_id: int = 5) -> bytearray:
    return batch(producer_id=producer_id, producer_epoch=0, sequence=number)


def test_lowest_refused_sequence_comes_first(node: DataPlane) -> None:
    refused = RefusedSequences()
    for number in (3, 2, 4):
        refused.note("t", 0, sequence(number), 0)
    with pytest.raises(RecordsRefused) as error:
        refused.check("t", node.partition(), sequence(3), 1)
    assert error.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    refused.check("t", node.partition(), sequence(2), 1)
    refused.check("t", node.partition(), sequence(3), 1)
    assert not refused


def test_producer_that_the_log_knows_is_judged_by_the_log(node: DataPlane) -> None:
    refused = RefusedSequences()
    refused.note("t", 0, sequence(0), 0)
    node.partition().append(sequence(0), 1)
    refused.check("t", node.partition(), sequence(9), 1)
    assert not refused


def test_batches_without_sequence_are_not_noted() -> None:
    refused = RefusedSequences()
    refused.note("t", 0, batch(), 0)
    refused.note("t", 0, None, 0)
    refused.note("t", 0, b"short", 0)
    assert not refused


def test_names_that_no_topic_can_have_are_not_kept() -> None:
    refused = RefusedSequences()
    refused.note("t" * 250, 0, sequence(0), 0)
    assert not refused


def test_oldest_note_leaves_for_a_new_one(node: DataPlane) -> None:
    refused = RefusedSequences()
    for producer_id in range(NOTES_MAX + 1):
        refused.note("t", 0, sequence(0, producer_id), 0)
    assert len(refused) == NOTES_MAX
    refused.check("t", node.partition(), sequence(1, 0), 1)
    with pytest.raises(RecordsRefused):
        refused.check("t", node.partition(), sequence(1, 1), 1)
