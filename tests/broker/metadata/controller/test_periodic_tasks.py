"""Periodic tasks of the active controller."""

import pytest

from broker.metadata.controller.configs import AlterOperation, ConfigOperation
from broker.metadata.controller.state import ControllerSettings
from broker.metadata.image.config_image import ConfigResource, ResourceType
from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.partition import NO_LEADER
from broker.metadata.image.records import InvalidMetadata
from protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    NoOpRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
)
from tests.broker.metadata.images import CLUSTER_ID, Cluster


def cluster(*, idle_ms: int = 0, rebalance: bool = False) -> Cluster:
    settings = ControllerSettings(
        CLUSTER_ID, node_id=1, max_idle_interval_ms=idle_ms, auto_leader_rebalance=rebalance, session_timeout_ms=10**9
    )
    return Cluster(settings)


class TestIdleLog:
    """NoOpRecords advance the log, regardless of other records."""

    def noops(self, cluster: Cluster) -> int:
        return sum(isinstance(record, NoOpRecord) for batch in cluster.log for record in batch.records)

    def test_noop_record_is_written_every_interval(self) -> None:
        idle = cluster(idle_ms=500)
        for _ in range(4):
            idle.now_ms += 250
            idle.run_periodic_tasks()
        assert self.noops(idle) == 2
        assert idle.controller.next_due_ms() == idle.now_ms + 500

    def test_noop_records_can_be_disabled(self) -> None:
        idle = cluster()
        idle.now_ms += 10_000
        idle.run_periodic_tasks()
        assert self.noops(idle) == 0
        assert idle.controller.next_due_ms() is None


class TestElections:
    def test_preferred_leaders_are_elected_after_the_interval(self) -> None:
        balanced = cluster(rebalance=True)
        balanced.start_brokers(1, 2)
        topic = balanced.create_topic("t", [[1, 2]])
        balanced.append_messages(PartitionChangeRecord(0, topic, leader=2), version=2)
        balanced.now_ms += 299_999
        balanced.run_periodic_tasks()
        assert balanced.partition("t").leader == 2
        balanced.now_ms += 1
        balanced.run_periodic_tasks()
        assert balanced.partition("t").leader == 1

    @pytest.mark.parametrize(("allowed", "leader"), [("true", 2), ("false", NO_LEADER)])
    def test_unclean_election_needs_the_topic_config(self, allowed: str, leader: int) -> None:
        stuck = cluster()
        stuck.start_brokers(1, 2)
        topic = stuck.create_topic("t", [[1, 2]])
        stuck.append_messages(PartitionChangeRecord(0, topic, isr=[1]), version=2)
        stuck.heartbeat(1, want_fence=True)
        stuck.append_messages(ConfigRecord(2, "t", "unclean.leader.election.enable", allowed))
        stuck.now_ms += 300_000
        stuck.run_periodic_tasks()
        assert stuck.partition("t").leader == leader

    @pytest.mark.parametrize(("where", "leader"), [("", 2), ("1", 2), ("2", NO_LEADER)])
    def test_cluster_or_node_config_may_allow_unclean_election(self, where: str, leader: int) -> None:
        stuck = cluster()
        stuck.start_brokers(1, 2, 3)
        stuck.create_topic("t", [[1, 2, 3]])
        for broker in (3, 2, 1):
            stuck.heartbeat(broker, want_fence=True)
        stuck.heartbeat(2)
        assert (stuck.partition("t").leader, stuck.partition("t").isr) == (NO_LEADER, (1,))
        allow = ConfigOperation("unclean.leader.election.enable", AlterOperation.SET, "true")
        resource = ConfigResource(ResourceType.BROKER, where)
        stuck.write(stuck.controller.alter_configs({resource: [allow]}, validate_only=False))
        stuck.now_ms += 300_000
        stuck.run_periodic_tasks()
        assert stuck.partition("t").leader == leader


class TestFailover:
    def test_open_transaction_of_a_previous_leader_is_aborted_first(self) -> None:
        left = cluster()
        left.append_messages(BeginTransactionRecord(name="half"), ProducerIdsRecord(1, 1, 5_000))
        left.fail_over()
        assert isinstance(left.log[-1].records[0], AbortTransactionRecord)
        assert left.image.producer_ids.next_id == 0
        left.start_brokers(1)
        left.create_topic("after", [[1]])
        assert left.image.topics.by_name("after") is not None

    def test_transaction_below_its_metadata_version_is_fatal(self) -> None:
        left = Cluster(level=MetadataVersion.IV_3_6_0)
        left.append_messages(BeginTransactionRecord(name="half"))
        with pytest.raises(InvalidMetadata):
            left.fail_over()
