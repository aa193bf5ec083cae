"""Standby controllers, and nodes that are brokers only."""

from random import Random

from broker.metadata.controller.controller import Controller
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.broker.metadata.images import Cluster, PlainSchema, uuid


def follower_of(cluster: Cluster, *, may_lead: bool) -> Controller:
    follower = Controller(cluster.settings, PlainSchema(), random=Random(1), new_id=lambda: uuid(1), may_lead=may_lead)
    follower.load(cluster.log)
    return follower


def test_standby_replays_to_the_active_controllers_state() -> None:
    cluster = Cluster()
    cluster.start_brokers(1)
    cluster.create_topic("t", [[1], [1]])
    cluster.expire_session(1)
    standby = follower_of(cluster, may_lead=True)
    assert standby.image == cluster.image
    assert standby.leaderless_count == cluster.controller.leaderless_count == 2


def test_controller_that_never_leads_has_no_index() -> None:
    cluster = Cluster()
    cluster.start_brokers(1)
    cluster.create_topic("t", [[1], [1]])
    cluster.expire_session(1)
    follower = follower_of(cluster, may_lead=False)
    assert follower.image == cluster.image
    assert follower.leaderless_count == 0


def test_deposed_controller_replays_the_batch_after_committed_control_records() -> None:
    """A change of the voters is committed while a later decision is not; the successor commits that decision."""
    cluster = Cluster()
    cluster.start_brokers(1)
    cluster.commit()
    before = cluster.controller.last_offset
    cluster.quorum_writes = 1
    request = CreateTopicsRequest(topics=[CreatableTopic("t", 1, 1)])
    cluster.write(cluster.controller.create_topics(request), commit=False)
    cluster.controller.commit(before + 1)
    cluster.controller.revert()
    assert cluster.controller.last_offset == before + 1
    cluster.controller.load([cluster.log[-1]])
    assert cluster.image.topics.by_name("t") is not None
