"""Reports of replica directories to the controller."""

from collections.abc import Awaitable
from dataclasses import dataclass

import pytest

from broker.metadata.image.partition import UNASSIGNED_DIRECTORY
from broker.runtime.controller.channel import LocalControllerChannel
from broker.runtime.controller.directory_assignments import DirectoryAssignments
from broker.runtime.controller.driver import ControllerDriver
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
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


class CountingChannel:
    """The node's own controller. `requests` counts the requests."""

    def __init__(self, driver: ControllerDriver) -> None:
        self._channel = LocalControllerChannel(driver)
        self.requests = 0

    def assign_directories(self, request: AssignReplicasToDirsRequest) -> Awaitable[AssignReplicasToDirsResponse]:
        self.requests += 1
        return self._channel.assign_directories(request)


class DirectoryAssignmentsHarness:
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
        self.channel = CountingChannel(self.node.driver)
        self.assignments = DirectoryAssignments(
            BrokerId(1),
            self.channel,
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

    def requests_within(self, ms: int) -> int:
        """Return the number of requests that the broker sends in the next `ms` milliseconds."""
        before = self.channel.requests
        self.node.pass_time(ms)
        return self.channel.requests - before

    def registered(self) -> list[Uuid]:
        topic = self.node.driver.image.topics.by_name("t")
        assert topic is not None
        return [partition.directories[0] for _, partition in topic.in_order()]


@pytest.fixture
def harness() -> DirectoryAssignmentsHarness:
    return DirectoryAssignmentsHarness()


def test_chosen_directory_is_reported_and_published(harness: DirectoryAssignmentsHarness) -> None:
    assert harness.registered() == [UNASSIGNED_DIRECTORY] * 2
    harness.host(0, SECOND)
    harness.host(1, FIRST)
    before = harness.node.driver.image.offset
    harness.node.pass_time(20)
    assert harness.registered() == [SECOND, FIRST]
    assert harness.node.driver.image.offset == before + 2
    assert harness.requests_within(100_000) == 0


def test_known_assignment_is_not_reported(harness: DirectoryAssignmentsHarness) -> None:
    harness.host(0, SECOND)
    harness.node.pass_time(20)
    before = harness.node.driver.image.offset
    harness.host(0, SECOND)
    harness.node.pass_time(20)
    assert harness.node.driver.image.offset == before


def test_missing_log_is_not_reported(harness: DirectoryAssignmentsHarness) -> None:
    harness.host(0, None)
    assert harness.requests_within(1_000) == 0


def test_assignment_is_retried_without_a_controller(harness: DirectoryAssignmentsHarness) -> None:
    harness.node.node.io.is_held = True
    harness.node.node.quorum.resign(1)
    harness.host(0, SECOND)
    harness.node.pass_time(20)
    assert harness.registered()[0] == UNASSIGNED_DIRECTORY
    harness.node.node.io.release()
    harness.node.pass_time(200)
    assert harness.registered()[0] == SECOND
    assert harness.requests_within(100_000) == 0


def test_assignment_is_retried_after_lost_leadership(harness: DirectoryAssignmentsHarness) -> None:
    harness.node.node.io.is_held = True
    harness.host(0, SECOND)
    harness.node.pass_time(20)
    harness.node.node.quorum.resign(1)
    harness.node.node.loop.run_soon()
    assert harness.registered()[0] == UNASSIGNED_DIRECTORY
    harness.node.node.io.release()
    harness.node.pass_time(500)
    assert harness.registered()[0] == SECOND
    assert harness.requests_within(100_000) == 0


def test_assignment_of_a_deleted_topic_is_dropped(harness: DirectoryAssignmentsHarness) -> None:
    harness.host(0, SECOND)
    topic = harness.node.driver.image.topics.by_name("t")
    assert topic is not None
    harness.node.run(lambda controller, _now: controller.delete_topics([topic.id]))
    harness.node.pass_time(20)
    assert harness.requests_within(100_000) == 0


def test_closed_reporter_sends_nothing(harness: DirectoryAssignmentsHarness) -> None:
    harness.host(0, SECOND)
    harness.assignments.close()
    harness.node.pass_time(1_000)
    assert harness.registered() == [UNASSIGNED_DIRECTORY] * 2
