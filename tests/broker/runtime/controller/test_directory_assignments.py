"""Reports of replica directories to the controller."""

from dataclasses import dataclass

import pytest

from broker.metadata.image.partition import UNASSIGNED_DIRECTORY
from broker.runtime.controller.channel import LocalControllerChannel
from broker.runtime.controller.directory_assignments import DirectoryAssignments
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.primitives import Uuid
from tests.broker.metadata.images import Cluster, uuid
from tests.broker.runtime.controller.test_driver import DriverNode

FIRST, SECOND = uuid(70), uuid(71)


@dataclass
class Replica:
    topic: str
    topic_id: Uuid
    index: int


class Scene:
    """A broker with two directories on its own controller, and a topic of two partitions."""

    def __init__(self) -> None:
        self.node = DriverNode().start()
        self.homes: dict[tuple[str, int], Uuid] = {}
        request = Cluster().registration(1)
        request.log_dirs = [FIRST, SECOND]
        self.node.run(lambda controller, now: controller.register_broker(request, now_ms=now))
        heartbeat = BrokerHeartbeatRequest(1, self.epoch, self.node.driver.image.offset)
        self.node.run(lambda controller, now: controller.heartbeat(heartbeat, now_ms=now))
        topic = CreateTopicsRequest([CreatableTopic("t", 2, 1)])
        self.node.run(lambda controller, _now: controller.create_topics(topic))
        self.assignments = DirectoryAssignments(
            BrokerId(1),
            LocalControllerChannel(self.node.driver),
            self.node.driver,
            self,
            lambda name, index: self.homes.get((name, index)),
            self.node.node.loop,
        )

    @property
    def epoch(self) -> BrokerEpoch:
        return self.node.driver.image.brokers.brokers[1].epoch

    def host(self, index: int, home: Uuid | None) -> None:
        """Host a partition whose log is in this directory."""
        topic = self.node.driver.image.topics.by_name("t")
        assert topic is not None
        if home is not None:
            self.homes["t", index] = home
        self.assignments.on_hosted(Replica("t", topic.id, index))

    def registered(self) -> list[Uuid]:
        topic = self.node.driver.image.topics.by_name("t")
        assert topic is not None
        return [partition.directories[0] for _, partition in topic.in_order()]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_chosen_directory_is_reported_and_published(scene: Scene) -> None:
    assert scene.registered() == [UNASSIGNED_DIRECTORY] * 2
    scene.host(0, SECOND)
    scene.host(1, FIRST)
    before = scene.node.driver.image.offset
    scene.node.pass_time(20)
    assert scene.registered() == [SECOND, FIRST]
    assert scene.node.driver.image.offset == before + 2
    assert scene.assignments.pending_count == 0


def test_known_assignment_is_not_reported(scene: Scene) -> None:
    scene.host(0, SECOND)
    scene.node.pass_time(20)
    before = scene.node.driver.image.offset
    scene.host(0, SECOND)
    scene.node.pass_time(20)
    assert scene.node.driver.image.offset == before


def test_missing_log_is_not_reported(scene: Scene) -> None:
    scene.host(0, None)
    assert scene.assignments.pending_count == 0


def test_assignment_is_retried_without_a_controller(scene: Scene) -> None:
    scene.node.node.io.is_held = True
    scene.node.node.quorum.resign(1)
    scene.host(0, SECOND)
    scene.node.pass_time(20)
    assert scene.assignments.pending_count == 1
    scene.node.node.io.release()
    scene.node.pass_time(200)
    assert scene.registered()[0] == SECOND
    assert scene.assignments.pending_count == 0


def test_assignment_is_retried_after_lost_leadership(scene: Scene) -> None:
    scene.node.node.io.is_held = True
    scene.host(0, SECOND)
    scene.node.pass_time(20)
    scene.node.node.quorum.resign(1)
    scene.node.node.loop.run_soon()
    assert scene.assignments.pending_count == 1
    scene.node.node.io.release()
    scene.node.pass_time(500)
    assert scene.registered()[0] == SECOND
    assert scene.assignments.pending_count == 0


def test_assignment_of_a_deleted_topic_is_dropped(scene: Scene) -> None:
    scene.host(0, SECOND)
    topic = scene.node.driver.image.topics.by_name("t")
    assert topic is not None
    scene.node.run(lambda controller, _now: controller.delete_topics([topic.id]))
    scene.node.pass_time(20)
    assert scene.assignments.pending_count == 0


def test_closed_reporter_sends_nothing(scene: Scene) -> None:
    scene.host(0, SECOND)
    scene.assignments.close()
    scene.node.pass_time(1_000)
    assert scene.registered() == [UNASSIGNED_DIRECTORY] * 2
