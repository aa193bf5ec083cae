"""Leader elections after stopped and killed brokers: preferred, unclean by request, and unclean by configuration."""

from collections.abc import Iterator

import pytest

from tests.support.clients.partition_states import partition_states, until, wait_for_state, wait_until_whole
from tests.support.clients.replicated_load import admin_of, consume_all, create_topic, produce
from tests.support.processes.broker_cluster import BrokerCluster

pytestmark = pytest.mark.integration

UNCLEAN = "unclean.leader.election.enable"
NO_LEADER = -1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    settings = {"unclean.leader.election.interval.ms": "300"}
    with BrokerCluster(tmp_path_factory.mktemp("brokers"), settings=settings) as running:
        yield running


def leave_without_eligible_leader(cluster: BrokerCluster, topic: str) -> None:
    """Leave the second of two records only on broker 1 and kill it. Broker 2 lives but is not eligible to lead."""
    create_topic(cluster.bootstrap, topic, 0, assignment=[[1, 2]])
    assert produce(cluster.bootstrap, topic, [b"both"]) == [0]
    cluster[2].kill()
    wait_for_state(cluster.bootstrap, topic, lambda state: state.isr == [1])
    assert produce(cluster.bootstrap, topic, [b"alone"]) == [1]
    cluster[1].kill()
    cluster.start(2)
    assert wait_for_state(cluster.bootstrap, topic, lambda state: state.leader == NO_LEADER)[0].isr == []


def check_loss(cluster: BrokerCluster, topic: str) -> None:
    """Check that the old leader truncated its unreplicated record and fetched the new leader's record instead."""
    wait_for_state(cluster.bootstrap, topic, lambda state: state.leader == 2)
    assert produce(cluster.bootstrap, topic, [b"next"]) == [1]
    cluster.start(1)
    wait_until_whole(cluster.bootstrap, topic)
    assert f"truncating the log partition={topic}-0 at=1 end=2" in cluster[1].log_text
    cluster.ottla("leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    wait_for_state(cluster.bootstrap, topic, lambda state: state.leader == 1 and state.is_whole)
    assert consume_all(cluster.bootstrap, topic, 0) == [b"both", b"next"]


def test_stop_moves_leaders_and_preferred_election_restores_them(cluster: BrokerCluster) -> None:
    create_topic(cluster.bootstrap, "moves", 0, assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    cluster[1].terminate()
    assert "Transitioning from PENDING_CONTROLLED_SHUTDOWN to SHUTTING_DOWN" in cluster[1].log_text
    after = wait_for_state(cluster.bootstrap, "moves", lambda state: sorted(state.isr) == [2, 3] and state.leader != 1)
    assert {index: state.leader for index, state in after.items()} == {0: 2, 1: 2, 2: 3}
    cluster.start(1)
    wait_until_whole(cluster.bootstrap, "moves")
    assert partition_states(admin_of(cluster.bootstrap), "moves")[0].leader == 2
    output = cluster.ottla("leader-election", "--election-type", "preferred", "--all-topic-partitions")
    assert "moves-0" in output
    assert "moves-1" not in output
    until(lambda: partition_states(admin_of(cluster.bootstrap), "moves")[0].leader == 1)


def test_operator_elects_an_unclean_leader(cluster: BrokerCluster) -> None:
    leave_without_eligible_leader(cluster, "asked")
    until(lambda: "Elr: 1" in cluster.ottla("topics", "--describe", "--topic", "asked"))
    one = ("--topic", "asked", "--partition", "0")
    refused = cluster.ottla("leader-election", "--election-type", "preferred", *one, check=False)
    assert "The preferred leader cannot take over now" in refused
    assert "asked-0" in cluster.ottla("leader-election", "--election-type", "unclean", *one)
    check_loss(cluster, "asked")


@pytest.mark.parametrize(
    "place", [("topics", "--entity-name"), ("brokers", "--entity-default")], ids=["topic", "cluster"]
)
def test_config_change_on_running_brokers_allows_an_unclean_leader(
    cluster: BrokerCluster, place: tuple[str, str]
) -> None:
    kind, which = place
    topic = f"allowed-by-{kind}"
    leave_without_eligible_leader(cluster, topic)
    entity = ("--entity-type", kind, which, *([topic] if kind == "topics" else []))
    cluster.ottla("configs", "--alter", *entity, "--add-config", f"{UNCLEAN}=true")
    check_loss(cluster, topic)
    cluster.ottla("configs", "--alter", *entity, "--delete-config", UNCLEAN)


def test_last_in_sync_replica_leads_again_without_loss(cluster: BrokerCluster) -> None:
    leave_without_eligible_leader(cluster, "patient")
    cluster.start(1)
    wait_until_whole(cluster.bootstrap, "patient")
    wait_for_state(cluster.bootstrap, "patient", lambda state: state.leader == 1)
    assert consume_all(cluster.bootstrap, "patient", 0) == [b"both", b"alone"]
