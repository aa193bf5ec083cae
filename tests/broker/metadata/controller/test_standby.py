"""Standby controllers, and nodes that are brokers only."""

from random import Random

from broker.metadata.controller.controller import Controller
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
