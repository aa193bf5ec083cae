"""The controller on a quorum: responses after commit, images in order, and failures."""

import errno
from collections.abc import Callable
from random import Random

import pytest

from broker.metadata.controller.controller import Controller, LocalBroker
from broker.metadata.controller.result import ControllerResult
from broker.metadata.controller.state import ControllerSettings
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.features import bootstrap_records
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import InvalidMetadata, VersionedRecord
from broker.runtime.controller.driver import Command, ControllerDriver
from broker.runtime.quorum.quorum import NotLeader
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.ids import BrokerId
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.metadata_records import RemoveTopicRecord
from storage.errors import LogDirFailure
from tests.broker.metadata.images import CLUSTER_ID, Cluster, PlainSchema, incarnation_of, uuid
from tests.broker.runtime.quorum.quorum_node import QuorumNode
from tests.support.fakes.memory_files import MemoryFileSystem
from tests.support.fakes.runtimes import make_runtime


class RecordingPublisher:
    """A publisher that checks that each delta leads from the previous image to the next."""

    def __init__(self) -> None:
        self.images: list[MetadataImage] = []
        self.deltas: list[MetadataDelta] = []

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self.images:
            assert delta.image is self.images[-1]
        assert delta.apply(image.provenance) == image
        self.images.append(image)
        self.deltas.append(delta)


class DriverNode:
    """One incarnation of a node with a controller."""

    def __init__(self, fs: MemoryFileSystem | None = None, *, incarnation: int = 1) -> None:
        self.node = QuorumNode(fs)
        settings = ControllerSettings(CLUSTER_ID, node_id=1, max_idle_interval_ms=0)
        ids = iter(range(1, 1_000))
        controller = Controller(
            settings, PlainSchema(), random=Random(1), new_id=lambda: uuid(100 * incarnation + next(ids))
        )
        self.driver = ControllerDriver(
            controller,
            self.node.quorum,
            make_runtime(self.node.loop, clock=self.node.clock, io=self.node.io),
            bootstrap=bootstrap_records(),
            local_broker=LocalBroker(BrokerId(1), incarnation_of(1, incarnation)),
        )
        self.publisher = RecordingPublisher()
        self.driver.add_publisher(self.publisher)
        self.node.quorum.add_listener(self.driver)
        self.incarnation = incarnation

    def start(self) -> "DriverNode":
        self.node.start()
        return self

    def run(self, command: Command[object]) -> object:
        future = self.driver.submit(command)
        self.node.settle()
        return future.result()

    def register_broker(self) -> None:
        request = Cluster().registration(1, incarnation=self.incarnation)
        self.run(lambda controller, now: controller.register_broker(request, now_ms=now))
        epoch = self.driver.image.brokers.brokers[1].epoch
        heartbeat = BrokerHeartbeatRequest(1, epoch, self.driver.image.offset)
        self.run(lambda controller, now: controller.heartbeat(heartbeat, now_ms=now))

    def pass_time(self, milliseconds: int) -> None:
        self.node.clock.advance_ms(milliseconds)
        self.node.loop.advance(milliseconds / 1000)


def creating(name: str) -> Command[CreateTopicsResponse]:
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1)])
    return lambda controller, _now: controller.create_topics(request)


def code_of(act: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        act()
    return caught.value.code


class TestStart:
    def test_empty_log_is_bootstrapped_and_published_once(self) -> None:
        node = DriverNode().start()
        assert node.driver.is_active
        assert len(node.publisher.images) == 1
        assert node.publisher.images[0].features.metadata_level == 29
        assert node.publisher.deltas[0].image.is_empty

    def test_activations_and_commands_are_counted(self) -> None:
        node = DriverNode().start()
        metrics = node.driver.metrics
        before = metrics.processing_us.count
        node.register_broker()
        assert (metrics.new_active_controllers, metrics.processing_us.count - before) == (1, 2)

    def test_commands_before_the_election_are_refused(self) -> None:
        node = DriverNode()
        assert code_of(lambda: node.driver.submit(creating("t"))) is ErrorCode.NOT_CONTROLLER

    def test_restart_publishes_everything_as_one_delta(self) -> None:
        first = DriverNode().start()
        first.register_broker()
        first.run(creating("t"))
        second = DriverNode(first.node.fs, incarnation=2).start()
        assert len(second.publisher.images) == 1
        assert second.publisher.images[0].topics.names() == ["t"]
        assert second.publisher.deltas[0].topics is not None
        assert [each.is_new for each in second.publisher.deltas[0].topics.changed.values()] == [True]
        second.register_broker()
        assert second.driver.image.brokers.is_active(1)

    def test_late_publisher_gets_the_whole_image_first(self) -> None:
        node = DriverNode().start()
        node.register_broker()
        node.run(creating("t"))
        late = RecordingPublisher()
        node.driver.add_publisher(late)
        assert late.images[0].topics.names() == ["t"]
        assert late.deltas[0].image.is_empty
        node.run(creating("u"))
        assert late.images[-1].topics.names() == ["t", "u"]

    def test_activation_is_reported_after_the_first_commit(self) -> None:
        node = DriverNode()
        activations: list[int] = []
        node.driver.watch_activation(lambda: activations.append(node.driver.image.offset))
        node.start()
        node.node.settle()
        assert activations == [node.driver.image.offset]


class TestCommands:
    def test_response_waits_for_the_commit(self) -> None:
        node = DriverNode().start()
        node.register_broker()
        node.node.io.is_held = True
        future = node.driver.submit(creating("t"))
        node.node.settle()
        assert not future.done()
        assert node.driver.image.topics.names() == []
        node.node.io.release()
        node.node.settle()
        assert future.result().topics[0].error_code == ErrorCode.NONE
        assert node.publisher.images[-1].topics.names() == ["t"]

    def test_command_sees_uncommitted_records(self) -> None:
        node = DriverNode().start()
        node.register_broker()
        node.node.io.is_held = True
        node.driver.submit(creating("t"))
        second = node.driver.submit(creating("t"))
        assert not second.done(), "an error based on an uncommitted record waits for its commit"
        node.node.io.release()
        node.node.settle()
        assert second.result().topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    def test_command_without_pending_records_completes_at_once(self) -> None:
        node = DriverNode().start()
        future = node.driver.submit(lambda _controller, _now: ControllerResult((), "answer"))
        assert future.result() == "answer"

    def test_cancelled_caller_does_not_affect_others(self) -> None:
        node = DriverNode().start()
        node.register_broker()
        node.node.io.is_held = True
        node.driver.submit(creating("t")).cancel()
        other = node.driver.submit(creating("u"))
        node.node.io.release()
        node.node.settle()
        assert other.result().topics[0].error_code == ErrorCode.NONE
        assert node.driver.image.topics.names() == ["t", "u"]

    def test_command_errors_reach_the_caller(self) -> None:
        node = DriverNode().start()
        request = BrokerHeartbeatRequest(9)
        act = lambda: node.driver.submit(lambda c, now: c.heartbeat(request, now_ms=now))  # noqa: E731
        assert code_of(act) is ErrorCode.STALE_BROKER_EPOCH
        assert node.driver.is_active


class TestFailures:
    def fail(self, _controller: Controller, _now: int) -> ControllerResult[None]:
        raise ValueError("an unexpected failure")

    def test_unexpected_error_resigns_and_recovers(self) -> None:
        node = DriverNode().start()
        node.register_broker()
        node.node.io.is_held = True
        pending = node.driver.submit(creating("t"))
        assert code_of(lambda: node.driver.submit(self.fail)) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert code_of(lambda: node.driver.submit(creating("u"))) is ErrorCode.NOT_CONTROLLER
        assert code_of(pending.result) is ErrorCode.NOT_CONTROLLER
        node.node.io.release()
        node.node.settle()
        assert node.driver.is_active
        assert node.driver.leader.epoch > 1
        assert node.driver.image.topics.names() == ["t"], "written records commit; only the response was uncertain"
        node.run(creating("u"))
        assert node.publisher.images[-1].topics.names() == ["t", "u"]

    def test_command_fails_when_the_quorum_has_another_leader(self) -> None:
        node = DriverNode().start()

        def not_leader(_controller: Controller, _now: int) -> ControllerResult[None]:
            raise NotLeader("deposed")

        assert code_of(lambda: node.driver.submit(not_leader)) is ErrorCode.NOT_CONTROLLER
        assert not node.driver.is_active

    def test_full_disk_resigns_and_ends_the_node(self) -> None:
        node = DriverNode().start()
        node.register_broker()
        node.node.fs.fail("write", errno.ENOSPC)
        unanswered = node.driver.submit(creating("t"))
        node.node.settle()
        assert [type(each) for each in node.node.failures] == [LogDirFailure]
        assert not unanswered.done()
        assert code_of(lambda: node.driver.submit(creating("u"))) is ErrorCode.NOT_CONTROLLER
        assert not node.driver.is_active
        assert code_of(unanswered.result) is ErrorCode.NOT_CONTROLLER

    def test_unreplayable_records_end_the_node(self) -> None:
        node = DriverNode().start()
        broken = ControllerResult([VersionedRecord(RemoveTopicRecord(uuid(77)), 0)], None)
        assert code_of(lambda: node.driver.submit(lambda _c, _now: broken)) is ErrorCode.UNKNOWN_SERVER_ERROR
        node.node.settle()
        assert [type(each) for each in node.node.failures] == [InvalidMetadata]

    def test_undecodable_committed_records_end_the_node(self) -> None:
        first = QuorumNode().start()
        first.append(b"\x07nonsense")
        first.settle()
        second = DriverNode(first.fs).start()
        assert [type(each) for each in second.node.failures] == [DecodeError]

    def test_close_fails_waiting_callers(self) -> None:
        node = DriverNode().start()
        node.register_broker()
        node.node.io.is_held = True
        pending = node.driver.submit(creating("t"))
        node.driver.close()
        assert code_of(pending.result) is ErrorCode.NOT_CONTROLLER


class TestPeriodicTasks:
    def test_silent_broker_is_fenced_on_time(self) -> None:
        node = DriverNode().start()
        node.register_broker()
        node.pass_time(8_900)
        assert node.driver.image.brokers.is_active(1)
        node.pass_time(200)
        assert not node.driver.image.brokers.is_active(1)

    @pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
    def test_wall_clock_step_moves_no_session(self, step_ms: int) -> None:
        node = DriverNode().start()
        node.register_broker()
        node.pass_time(1_000)
        node.node.clock.set_wall_ms(node.node.clock.now_ms() + step_ms)
        node.pass_time(7_900)
        assert node.driver.image.brokers.is_active(1)
        node.pass_time(200)
        assert not node.driver.image.brokers.is_active(1)

    def test_idle_log_advances(self) -> None:
        fs = MemoryFileSystem()
        node = DriverNode(fs)
        node.driver._controller._state.settings = ControllerSettings(CLUSTER_ID, node_id=1, max_idle_interval_ms=500)
        node.start()
        node.node.settle()
        before = node.driver.image.offset
        for _ in range(2):
            node.pass_time(501)
            node.node.settle()
        assert node.driver.image.offset == before + 2

    def test_no_task_runs_after_close(self) -> None:
        node = DriverNode().start()
        node.register_broker()
        node.driver.close()
        node.pass_time(60_000)
        assert node.driver.image.brokers.is_active(1)
