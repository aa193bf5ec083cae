"""The share coordinator over partitions on disk, through the handlers of its APIs."""

from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from broker.api.share.delete_share_group_state import DeleteShareGroupStateHandler
from broker.api.share.initialize_share_group_state import InitializeShareGroupStateHandler
from broker.api.share.read_share_group_state import ReadShareGroupStateHandler
from broker.api.share.read_share_group_state_summary import ReadShareGroupStateSummaryHandler
from broker.api.share.write_share_group_state import WriteShareGroupStateHandler
from broker.config.broker_config import BrokerConfig
from broker.metadata.image.topic_names import SHARE_STATE_TOPIC
from broker.node.share_state import build_share_coordinator
from protocol.errors import ErrorCode
from protocol.messages import delete_share_group_state as delete
from protocol.messages import initialize_share_group_state as initialize
from protocol.messages import read_share_group_state as read
from protocol.messages import read_share_group_state_summary as summary
from protocol.messages import write_share_group_state as write
from protocol.primitives import ONE_UUID, Uuid
from protocol.records.batch import iter_headers
from storage.log import Log
from tests.support.harnesses.data_plane import DataPlane

R = TypeVar("R")

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "log.dirs": "/data",
    "share.coordinator.snapshot.update.records.per.snapshot": "1",
}
BATCH = write.StateBatch(5, 9, 2, 1)


class ShareStates:
    """A node that leads the only partition of the topic, and the topic "t" with two partitions."""

    def __init__(self) -> None:
        self.plane = DataPlane()
        config = BrokerConfig(SETTINGS)
        self.coordinator = build_share_coordinator(
            self.plane.runtime, config, self.plane.partitions, lambda: self.plane.image, None
        )
        self.plane.publishers.append(self.coordinator)
        self.plane.partitions.roles.add_listener(self.coordinator)
        self.plane.create_topic(SHARE_STATE_TOPIC)
        self.topic = self.plane.create_topic("t", 2)

    def run(self, handled: Coroutine[Any, Any, R]) -> R:
        return self.plane.run(handled).value

    def initialize(self, start_offset: int, topic_id: Uuid | None = None, state_epoch: int = 1) -> list[ErrorCode]:
        partitions = [initialize.PartitionData(index, state_epoch, start_offset) for index in range(2)]
        topics = [initialize.InitializeStateData(topic_id or self.topic, partitions)]
        handler = InitializeShareGroupStateHandler(self.coordinator)
        response = self.run(handler(initialize.InitializeShareGroupStateRequest("g", topics), self.plane.context(0)))
        return [ErrorCode(each.error_code) for topic in response.results for each in topic.partitions]

    def read(self, leader_epoch: int) -> read.PartitionResult:
        topics = [read.ReadStateData(self.topic, [read.PartitionData(0, leader_epoch)])]
        handler = ReadShareGroupStateHandler(self.coordinator)
        response = self.run(handler(read.ReadShareGroupStateRequest("g", topics), self.plane.context(0)))
        return response.results[0].partitions[0]

    def write(self, *batches: write.StateBatch, leader_epoch: int = 0, start_offset: int = -1) -> ErrorCode:
        partition = write.PartitionData(0, 1, leader_epoch, start_offset, 3, list(batches))
        request = write.WriteShareGroupStateRequest("g", [write.WriteStateData(self.topic, [partition])])
        response = self.run(WriteShareGroupStateHandler(self.coordinator)(request, self.plane.context(1)))
        return ErrorCode(response.results[0].partitions[0].error_code)

    def summary(self) -> summary.PartitionResult:
        topics = [summary.ReadStateSummaryData(self.topic, [summary.PartitionData(0, 0)])]
        handler = ReadShareGroupStateSummaryHandler(self.coordinator)
        response = self.run(handler(summary.ReadShareGroupStateSummaryRequest("g", topics), self.plane.context(1)))
        return response.results[0].partitions[0]

    def delete(self) -> ErrorCode:
        topics = [delete.DeleteStateData(self.topic, [delete.PartitionData(0)])]
        handler = DeleteShareGroupStateHandler(self.coordinator)
        response = self.run(handler(delete.DeleteShareGroupStateRequest("g", topics), self.plane.context(0)))
        return ErrorCode(response.results[0].partitions[0].error_code)

    @property
    def log(self) -> Log:
        return self.plane.partition(SHARE_STATE_TOPIC).log


@pytest.fixture
def states() -> ShareStates:
    return ShareStates()


def test_state_is_kept_from_initialization_to_deletion(states: ShareStates) -> None:
    assert states.summary().start_offset == -1
    assert states.initialize(start_offset=5) == [ErrorCode.NONE] * 2
    assert states.read(leader_epoch=7).start_offset == 5
    assert states.write(BATCH, leader_epoch=7) is ErrorCode.NONE
    found = states.summary()
    assert (found.state_epoch, found.leader_epoch, found.start_offset, found.delivery_complete_count) == (1, 7, 5, 3)
    assert states.read(leader_epoch=7).state_batches == [read.StateBatch(5, 9, 2, 1)]
    assert states.delete() is ErrorCode.NONE
    assert states.summary().start_offset == -1


def test_refusal_names_the_partition_and_the_error(states: ShareStates) -> None:
    assert states.initialize(0, ONE_UUID) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    refused = states.read(leader_epoch=0)
    assert (refused.partition, ErrorCode(refused.error_code)) == (0, ErrorCode.INVALID_REQUEST)
    assert refused.error_message


def test_writes_of_several_share_partitions_share_a_batch(states: ShareStates) -> None:
    states.initialize(0)
    batches = states.log.log_end_offset
    partitions = [write.PartitionData(index, 1, 0, 3, 0, []) for index in range(2)]
    request = write.WriteShareGroupStateRequest("g", [write.WriteStateData(states.topic, partitions)])
    states.run(WriteShareGroupStateHandler(states.coordinator)(request, states.plane.context(1)))
    found = states.log.read(batches, 1000, states.log.log_end_offset)
    assert [header.record_count for _, header in iter_headers(found.data)] == [2]


def test_writes_of_one_share_partition_see_each_other(states: ShareStates) -> None:
    states.initialize(0)
    partitions = [write.PartitionData(0, 1, 0, -1, 0, [write.StateBatch(at, at, 2, 1)]) for at in range(4)]
    request = write.WriteShareGroupStateRequest("g", [write.WriteStateData(states.topic, partitions)])
    states.run(WriteShareGroupStateHandler(states.coordinator)(request, states.plane.context(1)))
    assert states.read(leader_epoch=0).state_batches == [read.StateBatch(0, 3, 2, 1)]


def test_replaced_records_are_pruned(states: ShareStates) -> None:
    states.initialize(0)
    states.coordinator.prune()
    assert states.log.log_start_offset == 0
    for _ in range(4):
        states.write(BATCH)
    states.initialize(0, state_epoch=2)
    states.coordinator.prune()
    assert states.log.log_start_offset == states.log.log_end_offset - 2
    assert states.coordinator.figures.pruned_offsets == {0: states.log.log_start_offset}


def test_states_of_a_deleted_topic_are_removed(states: ShareStates) -> None:
    states.initialize(0)
    end = states.log.log_end_offset
    states.plane.delete_topic(states.topic)
    assert states.log.log_end_offset == end + 2


def test_node_that_leads_no_more_is_not_the_coordinator(states: ShareStates) -> None:
    states.initialize(0)
    topic = states.plane.image.topics.by_name(SHARE_STATE_TOPIC)
    assert topic is not None
    states.plane.register_broker(2)
    states.plane.elect(topic.id, 2)
    assert states.read(0).error_code == ErrorCode.NOT_COORDINATOR
