"""Entries of a timeline."""

from protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.chaos.timeline import changed, view_of

ANSWER = MetadataResponse(
    brokers=[MetadataResponseBroker(3), MetadataResponseBroker(1)],
    topics=[
        MetadataResponseTopic(
            name="chaos",
            partitions=[
                MetadataResponsePartition(partition_index=4, leader_id=3, leader_epoch=7, isr_nodes=[3, 1]),
                MetadataResponsePartition(partition_index=5, leader_id=-1, leader_epoch=8, isr_nodes=[2]),
            ],
        )
    ],
)


def test_view_shows_brokers_and_leaders() -> None:
    assert view_of(ANSWER) == {
        "brokers": "[1, 3]",
        "leader of chaos-4": "3 in epoch 7, isr [1, 3]",
        "leader of chaos-5": "-1 in epoch 8, isr [2]",
    }


def test_only_changes_are_described() -> None:
    before = view_of(ANSWER)
    assert changed(before, before) == ""
    assert changed({}, {"nothing": "TimedOut"}) == "nothing: TimedOut"
    assert changed(before, {**before, "brokers": "[1]"}) == "brokers: [1]"
