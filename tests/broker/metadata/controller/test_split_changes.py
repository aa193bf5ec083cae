"""Removal of brokers with thousands of partitions in parts, with other commands in between."""

from collections.abc import Iterator

import pytest

from broker.metadata.controller.result import RECORDS_PER_SPLIT_BATCH, CommandResult, PartialResult
from broker.metadata.image.partition import PartitionRegistration
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from protocol.messages.alter_partition import AlterPartitionRequestTopicData as AlterTopic
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.broker.metadata.images import Cluster

PARTITIONS = 2 * RECORDS_PER_SPLIT_BATCH + 500
BIG = "big"


@pytest.fixture
def cluster() -> Cluster:
    """Three brokers, each with a replica of more partitions than fit two parts."""
    cluster = Cluster()
    cluster.start_brokers(1, 2, 3)
    create(cluster, BIG, PARTITIONS)
    return cluster


def create(cluster: Cluster, name: str, partitions: int) -> None:
    request = CreateTopicsRequest([CreatableTopic(name, partitions, 3)])
    answer = cluster.write(cluster.controller.create_topics(request))
    assert answer.topics[0].error_code == ErrorCode.NONE, answer.topics[0].error_message


def heartbeat(
    cluster: Cluster, broker: int, *, want_fence: bool = False, want_shut_down: bool = False
) -> CommandResult[BrokerHeartbeatResponse]:
    registration = cluster.image.brokers.get(broker)
    assert registration is not None
    request = BrokerHeartbeatRequest(
        broker, registration.epoch, cluster.controller.last_offset, want_fence, want_shut_down
    )
    return cluster.controller.heartbeat(request, now_ms=cluster.now_ms)


def partitions(cluster: Cluster, name: str = BIG) -> Iterator[PartitionRegistration]:
    topic = cluster.image.topics.by_name(name)
    assert topic is not None
    yield from topic.partitions.values()


def in_sync_count(cluster: Cluster, broker: int) -> int:
    return sum(broker in each.isr for each in partitions(cluster))


def led_count(cluster: Cluster, broker: int) -> int:
    return sum(each.leader == broker for each in partitions(cluster))


def begin(cluster: Cluster, outcome: CommandResult[object]) -> PartialResult[object]:
    """Write the first part."""
    assert isinstance(outcome, PartialResult)
    cluster.write_part(outcome)
    return outcome


def finish(cluster: Cluster, part: PartialResult[object]) -> None:
    cluster.write(part.rest(cluster.now_ms))


def is_fenced(cluster: Cluster, broker: int) -> bool:
    registration = cluster.image.brokers.get(broker)
    assert registration is not None
    return registration.fenced


# Fencing


def test_broker_is_fenced_in_parts_and_marked_fenced_last(cluster: Cluster) -> None:
    outcome: CommandResult[object] = heartbeat(cluster, 1, want_fence=True)
    sizes = []
    while isinstance(outcome, PartialResult):
        sizes.append(len(outcome.records))
        cluster.write_part(outcome)
        assert not is_fenced(cluster, 1)
        outcome = outcome.rest(cluster.now_ms)
    response = cluster.write(outcome)
    assert sizes == [RECORDS_PER_SPLIT_BATCH] * 2
    assert isinstance(response, BrokerHeartbeatResponse)
    assert response.is_fenced
    assert is_fenced(cluster, 1)
    assert (in_sync_count(cluster, 1), led_count(cluster, 1)) == (0, 0)


def test_leaving_broker_is_not_elected_and_joins_no_isr(cluster: Cluster) -> None:
    part = begin(cluster, heartbeat(cluster, 1, want_fence=True))
    create(cluster, "meanwhile", 6)
    assert all(1 not in each.isr and each.leader != 1 for each in partitions(cluster, "meanwhile"))
    finish(cluster, begin(cluster, part.rest(cluster.now_ms)))
    assert in_sync_count(cluster, 1) == 0


def test_leaving_broker_cannot_rejoin_an_isr(cluster: Cluster) -> None:
    begin(cluster, heartbeat(cluster, 1, want_fence=True))
    index, before = next((i, p) for i, p in enumerate(partitions_in_order(cluster)) if 1 not in p.isr)
    answer = propose(cluster, index, before, isr=[*before.isr, 1])
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA


def partitions_in_order(cluster: Cluster) -> list[PartitionRegistration]:
    topic = cluster.image.topics.by_name(BIG)
    assert topic is not None
    return [registration for _, registration in topic.in_order()]


def propose(
    cluster: Cluster, index: int, before: PartitionRegistration, *, isr: list[int]
) -> AlterPartitionResponsePartitionData:
    leader, topic = cluster.image.brokers.get(before.leader), cluster.image.topics.by_name(BIG)
    assert leader is not None
    assert topic is not None
    data = AlterPartitionRequestPartitionData(
        partition_index=index,
        leader_epoch=before.leader_epoch,
        new_isr_with_epochs=[BrokerState(broker, -1) for broker in isr],
        partition_epoch=before.partition_epoch,
    )
    request = AlterPartitionRequest(leader.id, leader.epoch, [AlterTopic(topic.id, [data])])
    return cluster.write(cluster.controller.alter_partitions(request)).topics[0].partitions[0]


def test_commands_on_a_leaving_broker_wait_until_it_has_left(cluster: Cluster) -> None:
    part = begin(cluster, heartbeat(cluster, 1, want_fence=True))
    waiting = heartbeat(cluster, 1)
    assert isinstance(waiting, PartialResult)
    assert not waiting.records
    still = waiting.rest(cluster.now_ms)
    assert isinstance(still, PartialResult)
    finish(cluster, part)
    response = cluster.write(still.rest(cluster.now_ms))
    assert not response.is_fenced  # a heartbeat after the fencing unfences the broker again
    assert not is_fenced(cluster, 1)


def test_topic_can_be_deleted_while_a_broker_leaves(cluster: Cluster) -> None:
    create(cluster, "other", RECORDS_PER_SPLIT_BATCH)
    part = begin(cluster, heartbeat(cluster, 1, want_fence=True))
    for name in (BIG, "other"):
        topic = cluster.image.topics.by_name(name)
        assert topic is not None
        cluster.write(cluster.controller.delete_topics([topic.id]))
    finish(cluster, part)
    assert is_fenced(cluster, 1)


def test_brokers_with_sessions_expired_together_leave_one_at_a_time(cluster: Cluster) -> None:
    cluster.now_ms += cluster.settings.session_timeout_ms
    fence, *_ = cluster.controller.due_tasks(cluster.now_ms)
    part = begin(cluster, fence(cluster.now_ms))
    cluster.run_periodic_tasks()
    assert not any(is_fenced(cluster, broker) for broker in (1, 2, 3))
    finish(cluster, part)
    assert sum(is_fenced(cluster, broker) for broker in (1, 2, 3)) == 1
    for _ in range(2):
        cluster.run_periodic_tasks()
    assert all(is_fenced(cluster, broker) for broker in (1, 2, 3))
    assert cluster.controller.leaderless_count == PARTITIONS


# A controller failure in between


def test_interrupted_fencing_is_repeated_when_the_session_expires(cluster: Cluster) -> None:
    begin(cluster, heartbeat(cluster, 1, want_fence=True))
    cluster.fail_over()
    assert not is_fenced(cluster, 1)
    assert 0 < in_sync_count(cluster, 1) < PARTITIONS
    cluster.expire_session(1, others=(2, 3))
    assert is_fenced(cluster, 1)
    assert (in_sync_count(cluster, 1), led_count(cluster, 1)) == (0, 0)


def test_broker_with_interrupted_fencing_stays_after_a_heartbeat(cluster: Cluster) -> None:
    begin(cluster, heartbeat(cluster, 1, want_fence=True))
    cluster.fail_over()
    response = cluster.heartbeat(1)
    assert not response.is_fenced
    index, before = next((i, p) for i, p in enumerate(partitions_in_order(cluster)) if 1 not in p.isr)
    assert propose(cluster, index, before, isr=[*before.isr, 1]).error_code == ErrorCode.NONE


def test_interrupted_controlled_shutdown_continues_under_the_next_controller(cluster: Cluster) -> None:
    begin(cluster, heartbeat(cluster, 1, want_shut_down=True))
    cluster.fail_over()
    assert led_count(cluster, 1) > 0
    response = cluster.heartbeat(1, want_shut_down=True)
    assert not response.should_shut_down
    assert (in_sync_count(cluster, 1), led_count(cluster, 1)) == (0, 0)
    for broker in (2, 3):
        cluster.heartbeat(broker)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_interrupted_unfencing_leaves_no_leaderless_partition(cluster: Cluster) -> None:
    cluster.now_ms += cluster.settings.session_timeout_ms
    for _ in range(3):
        cluster.run_periodic_tasks()
    last = next(broker for broker in (1, 2, 3) if in_sync_count(cluster, broker))
    begin(cluster, heartbeat(cluster, last))
    assert not is_fenced(cluster, last)
    cluster.fail_over()
    assert cluster.controller.leaderless_count > 0
    cluster.run_periodic_tasks()
    assert cluster.controller.leaderless_count == 0
    assert cluster.controller.due_tasks(cluster.now_ms) == []


def test_lost_leadership_clears_leaving_brokers(cluster: Cluster) -> None:
    begin(cluster, heartbeat(cluster, 1, want_fence=True))
    cluster.controller.revert()
    cluster.activate()
    assert not isinstance(heartbeat(cluster, 1), PartialResult)


# Controlled shutdown, unregistration and replacement


def test_controlled_shutdown_waits_until_the_last_part_is_applied(cluster: Cluster) -> None:
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    behind = cluster.controller.last_offset - 1
    cluster.heartbeat(2, offset=behind)
    cluster.heartbeat(3)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.heartbeat(2, offset=behind + 1)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_unregistration_record_is_written_last(cluster: Cluster) -> None:
    part = begin(cluster, cluster.controller.unregister_broker(UnregisterBrokerRequest(1)))
    assert cluster.image.brokers.get(1) is not None
    again = cluster.controller.unregister_broker(UnregisterBrokerRequest(1))
    assert isinstance(again, PartialResult)
    finish(cluster, part)
    assert cluster.image.brokers.get(1) is None
    with pytest.raises(KafkaError) as refused:
        cluster.write(again.rest(cluster.now_ms))
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_new_incarnation_registers_with_any_number_of_partitions(cluster: Cluster) -> None:
    cluster.fail_over()
    before = cluster.controller.last_offset
    epoch = cluster.register(1, incarnation=2)
    assert before + 2 * RECORDS_PER_SPLIT_BATCH < epoch <= cluster.controller.last_offset
    assert is_fenced(cluster, 1)
    assert in_sync_count(cluster, 1) == 0


def test_small_changes_are_a_single_result(cluster: Cluster) -> None:
    cluster.register(4)
    assert not isinstance(heartbeat(cluster, 4), PartialResult)
    cluster.heartbeat(4)
    assert not isinstance(heartbeat(cluster, 4, want_fence=True), PartialResult)
