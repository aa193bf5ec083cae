"""ElectLeaders: preferred and unclean elections on request (KIP-183, KIP-460)."""

from collections.abc import Mapping, Sequence

import pytest

from broker.metadata.controller import leader_elections
from broker.metadata.image.partition import NO_LEADER, LeaderRecoveryState
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.metadata_records import PartitionChangeRecord
from tests.broker.metadata.images import Cluster

PREFERRED, UNCLEAN = 0, 1
Answers = dict[tuple[str, int], ErrorCode]


def elect(cluster: Cluster, kind: int, requested: Mapping[str, Sequence[int]] | None) -> Answers:
    topics = (
        None if requested is None else [TopicPartitions(name, list(indexes)) for name, indexes in requested.items()]
    )
    response = cluster.write(cluster.controller.elect_leaders(ElectLeadersRequest(kind, topics)))
    return {
        (topic.topic, each.partition_id): ErrorCode(each.error_code)
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


@pytest.fixture
def cluster() -> Cluster:
    """Topic a: 0 and 1 led by 1, but 0 prefers 2; topic b leaderless; topic c with its preferred leader."""
    cluster = Cluster()
    cluster.start_brokers(1, 2, 3)
    topic = cluster.create_topic("a", [[2, 1], [1, 2]])
    cluster.append_messages(PartitionChangeRecord(0, topic, leader=1), version=2)
    topic = cluster.create_topic("b", [[3, 1]])
    cluster.append_messages(PartitionChangeRecord(0, topic, isr=[3]), version=2)
    cluster.expire_session(3, others=(1, 2))
    cluster.create_topic("c", [[1]])
    cluster.commit()
    assert cluster.partition("b").leader == NO_LEADER
    return cluster


class TestPreferred:
    def test_preferred_leaders_are_elected(self, cluster: Cluster) -> None:
        assert elect(cluster, PREFERRED, {"a": [0]}) == {("a", 0): ErrorCode.NONE}
        assert cluster.partition("a").leader == 2

    def test_every_requested_partition_has_a_result(self, cluster: Cluster) -> None:
        assert elect(cluster, PREFERRED, {"a": [0, 1, 7], "b": [0], "x": [0]}) == {
            ("a", 0): ErrorCode.NONE,
            ("a", 1): ErrorCode.ELECTION_NOT_NEEDED,
            ("a", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("b", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            ("x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    def test_null_elects_all_imbalanced_partitions(self, cluster: Cluster) -> None:
        assert elect(cluster, PREFERRED, None) == {
            ("a", 0): ErrorCode.NONE,
            ("b", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        }
        assert elect(cluster, PREFERRED, None) == {("b", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}

    def test_partition_named_twice_is_elected_once(self, cluster: Cluster) -> None:
        before = cluster.partition("a").leader_epoch
        assert elect(cluster, PREFERRED, {"a": [0, 0]}) == {("a", 0): ErrorCode.NONE}
        assert cluster.partition("a").leader_epoch == before + 1


class TestUnclean:
    def test_unclean_election_elects_any_replica(self, cluster: Cluster) -> None:
        assert elect(cluster, UNCLEAN, {"b": [0]}) == {("b", 0): ErrorCode.NONE}
        partition = cluster.partition("b")
        assert (partition.leader, partition.isr) == (1, (1,))
        assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERING

    def test_unclean_election_is_not_needed_with_a_leader(self, cluster: Cluster) -> None:
        assert elect(cluster, UNCLEAN, {"a": [0]}) == {("a", 0): ErrorCode.ELECTION_NOT_NEEDED}

    def test_null_elects_all_leaderless_partitions(self, cluster: Cluster) -> None:
        assert elect(cluster, UNCLEAN, None) == {("b", 0): ErrorCode.NONE}

    def test_election_without_live_replicas_fails(self, cluster: Cluster) -> None:
        cluster.heartbeat(1, want_fence=True)
        assert elect(cluster, UNCLEAN, {"b": [0]}) == {("b", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_unknown_election_type_is_refused(cluster: Cluster) -> None:
    with pytest.raises(KafkaError) as caught:
        elect(cluster, 2, None)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_too_many_elections_are_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_elections, "MAX_RECORDS_PER_BATCH", 0)
    with pytest.raises(KafkaError) as caught:
        elect(cluster, PREFERRED, None)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
