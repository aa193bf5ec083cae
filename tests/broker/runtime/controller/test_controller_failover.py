"""The controller's driver across leader changes, late and lost commits, and snapshots."""

import gc
from collections.abc import Sequence
from random import Random

import pytest

from broker.metadata.controller.controller import Controller
from broker.metadata.controller.result import CommandResult, ControllerResult, PartialResult
from broker.metadata.controller.state import ControllerSettings
from broker.metadata.image.config_image import CLUSTER_DEFAULT, ConfigResource, ResourceType, config_record
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.features import bootstrap_records
from broker.metadata.image.metadata_image import Provenance
from broker.metadata.image.records import encode_record
from broker.metadata.snapshot.codec import image_batches
from broker.runtime.controller.driver import Command, ControllerDriver, UnusableSnapshot
from broker.runtime.quorum.quorum import Appended, BatchTooLarge, CommittedBatch, NotLeader, QuorumListener
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch, Offset
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.metadata_records import RemoveTopicRecord, TopicRecord
from tests.broker.metadata.images import CLUSTER_ID, Cluster, PlainSchema, image_of, uuid
from tests.broker.runtime.controller.test_driver import RecordingPublisher, creating
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.inline_io import InlineIo
from tests.support.fakes.manual_loop import ManualLoop
from tests.support.fakes.runtimes import make_runtime
from tests.support.quorum_values import leader_and_epoch, make_snapshot_id

NODE = 1


class ScriptedQuorum:
    """A quorum whose elections and commits the test decides. `tail` holds uncommitted batches."""

    node_id = NODE

    def __init__(self) -> None:
        self.leader = leader_and_epoch(None, 0)
        self.high_watermark: int | None = None
        self.log_end_offset = 0
        self.tail: list[CommittedBatch] = []
        self.listener: QuorumListener | None = None
        self.resigned: list[int] = []
        self.refusal: Exception | None = None

    def add_listener(self, listener: QuorumListener) -> None:
        self.listener = listener

    def append(self, epoch: int, frames: Sequence[bytes]) -> Appended:
        if self.refusal is not None:
            raise self.refusal
        if self.leader != leader_and_epoch(NODE, epoch):
            raise NotLeader("deposed")
        return self.write(epoch, frames)

    def resign(self, epoch: int) -> None:
        self.resigned.append(epoch)

    # Test actions

    def write(self, epoch: int, frames: Sequence[bytes] = ()) -> Appended:
        """Append a batch; without frames, a control batch."""
        base, count = self.log_end_offset, len(frames) or 1
        self.log_end_offset += count
        time_ms = 1_000 + base
        self.tail.append(CommittedBatch(base, base + count - 1, LeaderEpoch(epoch), time_ms, list(frames)))
        return Appended(Offset(base), Offset(base + count - 1), time_ms)

    def commit(self) -> None:
        """Commit the whole tail."""
        batches, self.tail = self.tail, []
        self.high_watermark = self.log_end_offset
        assert self.listener is not None
        self.listener.on_commit(batches)

    def elect(self, leader: int | None, epoch: int) -> None:
        """Elect a leader; its first record commits before it is notified."""
        self.leader = leader_and_epoch(leader, epoch)
        assert self.listener is not None
        if leader == NODE:
            self.write(epoch)
            self.commit()
        self.listener.on_leader_change(self.leader)

    def truncate(self) -> None:
        """Drop the tail, which the new leader never had."""
        self.log_end_offset = self.tail[0].base_offset
        self.tail.clear()


class Node:
    def __init__(self, large_image_partitions: int = 20_000) -> None:
        self.quorum, self.loop, self.publisher = ScriptedQuorum(), ManualLoop(), RecordingPublisher()
        ids = iter(range(1, 1_000))
        controller = Controller(
            ControllerSettings(CLUSTER_ID, node_id=NODE, max_idle_interval_ms=0),
            PlainSchema(),
            random=Random(1),
            new_id=lambda: uuid(next(ids)),
        )
        self.driver = ControllerDriver(
            controller,
            self.quorum,
            make_runtime(self.loop, clock=ManualClock(), io=InlineIo(self.loop)),
            bootstrap=bootstrap_records(),
            local_broker=None,
            large_image_partitions=large_image_partitions,
        )
        self.driver.add_publisher(self.publisher)
        self.quorum.add_listener(self.driver)

    def lead(self, epoch: int) -> "Node":
        self.quorum.elect(NODE, epoch)
        self.quorum.commit()
        return self

    def with_broker(self) -> "Node":
        request = Cluster().registration(1)
        self.driver.submit(lambda controller, now: controller.register_broker(request, now_ms=now))
        self.quorum.commit()
        return self

    @property
    def names(self) -> list[str]:
        return self.driver.image.topics.names()


def leading_node() -> Node:
    """Return a node that leads in epoch 1 with one broker that can hold partitions."""
    node = Node().lead(1).with_broker()
    epoch = node.driver.image.brokers.brokers[1].epoch
    heartbeat = BrokerHeartbeatRequest(1, epoch, node.driver.image.offset)
    node.driver.submit(lambda controller, now: controller.heartbeat(heartbeat, now_ms=now))
    node.quorum.commit()
    return node


class Chunks:
    """A reader of a snapshot in chunks."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = [chunk for chunk in chunks if chunk]
        self.size = sum(map(len, chunks))

    def next_chunk(self) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""

    def close(self) -> None:
        """Do nothing: the reader holds no resources."""


def topic_frame(name: str, number: int) -> bytes:
    return encode_record(TopicRecord(name=name, topic_id=uuid(number)), 0)


def test_standby_replays_committed_batches() -> None:
    node = Node()
    node.quorum.elect(2, 1)
    node.quorum.write(1)
    node.quorum.write(1, [encode_record(*record) for record in bootstrap_records()])
    node.quorum.write(1, [topic_frame("theirs", 500)])
    node.quorum.commit()
    assert node.names == ["theirs"]
    assert not node.driver.is_active
    with pytest.raises(KafkaError) as caught:
        node.driver.submit(creating("mine"))
    assert caught.value.code is ErrorCode.NOT_CONTROLLER


def test_uncommitted_batches_of_a_deposed_leader_are_reverted() -> None:
    node = leading_node()
    pending = node.driver.submit(creating("lost"))
    node.quorum.elect(2, 2)
    assert isinstance(pending.exception(), KafkaError)
    node.quorum.truncate()
    node.quorum.write(2)
    node.quorum.write(2, [topic_frame("theirs", 500)])
    node.quorum.commit()
    assert node.names == ["theirs"]
    assert node.driver.leaderless_count == 0


def test_batches_of_a_deposed_leader_may_commit_later() -> None:
    node = leading_node()
    pending = node.driver.submit(creating("late"))
    node.quorum.elect(2, 2)
    assert isinstance(pending.exception(), KafkaError)
    assert node.names == []
    node.quorum.write(2)
    node.quorum.commit()
    assert node.names == ["late"]


def test_returning_leader_continues_from_other_leaders_records() -> None:
    node = leading_node()
    node.driver.submit(creating("lost"))
    node.quorum.elect(2, 2)
    node.quorum.truncate()
    node.quorum.write(2)
    node.quorum.write(2, [topic_frame("theirs", 500)])
    node.quorum.commit()
    node.lead(3)
    again = node.driver.submit(creating("lost"))
    node.quorum.commit()
    assert again.result().topics[0].error_code == 0
    assert node.names == ["lost", "theirs"]
    images = [image.offset for image in node.publisher.images]
    assert images == sorted(images)


def test_snapshot_replaces_the_state_and_publishes_removals() -> None:
    """The standby lags so far that the leader's log begins after its end."""
    node = Node()
    node.quorum.elect(2, 1)
    node.quorum.write(1)
    node.quorum.write(1, [encode_record(*record) for record in bootstrap_records()])
    node.quorum.write(1, [topic_frame("kept", 500), topic_frame("deleted", 501)])
    node.quorum.commit()
    kept = node.driver.image.topics.by_name("kept")
    target = image_of([TopicRecord(name="new", topic_id=uuid(502))], node.driver.image)
    delta = MetadataDelta(target)
    delta.replay(RemoveTopicRecord(topic_id=uuid(501)))
    target = delta.apply(Provenance(99, LeaderEpoch(4), 5_000))
    done = node.driver.on_load_snapshot(make_snapshot_id(100, 4), Chunks(list(image_batches(target, None))))
    node.loop.run_soon()
    done.result()
    assert node.driver.image == target
    assert node.driver.image.topics.by_name("kept") is kept
    topics_delta = node.publisher.deltas[-1].topics
    assert topics_delta is not None
    assert list(topics_delta.changed) == [uuid(502)]
    assert list(topics_delta.deleted) == [uuid(501)]
    node.quorum.log_end_offset = 100
    node.quorum.write(4, [topic_frame("after", 503)])
    node.quorum.commit()
    assert node.names == ["after", "kept", "new"]


def test_first_image_from_a_snapshot_has_a_whole_delta() -> None:
    """Regression: a snapshot that ended at the high watermark was published with an empty delta, so a node that began
    with it ignored the dynamic broker configs in it.
    """
    node = Node()
    node.quorum.elect(2, 4)
    default = ConfigResource(ResourceType.BROKER, CLUSTER_DEFAULT)
    records = [record.message for record in bootstrap_records()]
    target = image_of([*records, config_record(default, "num.io.threads", "3").message])
    target = target._replace(provenance=Provenance(99, LeaderEpoch(4), 5_000))
    node.quorum.high_watermark = node.quorum.log_end_offset = 100
    done = node.driver.on_load_snapshot(make_snapshot_id(100, 4), Chunks(list(image_batches(target, None))))
    node.loop.run_soon()
    done.result()
    assert node.publisher.images == [target]
    configs = node.publisher.deltas[0].configs
    assert configs is not None
    assert list(configs.changed_resources) == [default]


def test_snapshot_under_a_wrong_name_ends_the_node() -> None:
    node = Node()
    node.quorum.elect(2, 1)
    content = list(image_batches(image_of([])._replace(provenance=Provenance(9, LeaderEpoch(3), 1)), None))
    done = node.driver.on_load_snapshot(make_snapshot_id(10, 4), Chunks(content))
    node.loop.run_soon()
    assert isinstance(done.exception(), UnusableSnapshot)
    assert str(done.exception()) == "snapshot 10-4: the batches have epoch 3, the snapshot's name has 4"


def test_close_cancels_a_snapshot_load() -> None:
    node = Node()
    chunks = Chunks(list(image_batches(image_of([]), None)))
    done = node.driver.on_load_snapshot(make_snapshot_id(1, 0), chunks)
    node.driver.close()
    node.loop.run_soon()
    assert done.cancelled()


def test_control_records_between_batches_leave_no_gap() -> None:
    """The quorum writes voters while this controller leads."""
    node = leading_node()
    first = node.driver.submit(creating("a"))
    node.quorum.write(1)
    second = node.driver.submit(creating("b"))
    node.quorum.commit()
    assert first.done()
    assert second.done()
    node.quorum.write(1)
    node.quorum.commit()
    third = node.driver.submit(creating("c"))
    node.quorum.commit()
    assert third.done()
    assert node.names == ["a", "b", "c"]
    assert node.driver.image.offset == node.quorum.log_end_offset - 1


def test_leadership_lost_before_activation_is_not_a_failure() -> None:
    node = Node()
    node.quorum.refusal = NotLeader("deposed already")
    node.quorum.elect(NODE, 1)
    assert not node.driver.is_active
    node.quorum.refusal = None
    node.lead(2)
    assert node.driver.is_active


def test_oversized_batch_fails_the_request_and_keeps_leadership() -> None:
    node = leading_node()
    node.quorum.refusal = BatchTooLarge("2 records need 9000000 bytes")
    with pytest.raises(KafkaError) as caught:
        node.driver.submit(creating("large"))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    node.quorum.refusal = None
    node.driver.submit(creating("small"))
    node.quorum.commit()
    assert node.names == ["small"]
    assert node.quorum.resigned == []


def creating_in_parts(*names: str) -> Command[str]:
    """Return a command that creates topics in parts and responds with the last name."""

    def create(controller: Controller, now_ms: int) -> CommandResult[str]:
        return proceed(controller, list(names))

    def proceed(controller: Controller, left: list[str]) -> CommandResult[str]:
        name, *rest = left
        created = creating(name)(controller, 0)
        if rest:
            return PartialResult(created.records, lambda _now_ms: proceed(controller, rest))
        return ControllerResult(created.records, name)

    return create


def test_other_commands_run_between_parts_and_see_their_effect() -> None:
    node = leading_node()
    long = node.driver.submit(creating_in_parts("a", "b"))
    twice = node.driver.submit(creating("a"))
    ahead = node.driver.submit(creating("b"))
    node.quorum.commit()
    assert not long.done()
    assert twice.result().topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert ahead.result().topics[0].error_code == ErrorCode.NONE
    node.loop.run_soon()
    node.quorum.commit()
    assert long.result() == "b"
    assert node.names == ["a", "b"]


def test_parts_continue_after_the_caller_is_gone() -> None:
    node = leading_node()
    node.driver.submit(creating_in_parts("a", "b", "c")).cancel()
    node.loop.run_soon()
    node.quorum.commit()
    assert node.names == ["a", "b", "c"]


def test_remaining_parts_end_with_the_leadership() -> None:
    node = leading_node()
    cut = node.driver.submit(creating_in_parts("a", "b"))
    node.quorum.elect(2, 2)
    node.quorum.truncate()
    node.lead(3)
    node.loop.run_soon()
    node.quorum.commit()
    error = cut.exception()
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.NOT_CONTROLLER
    assert node.names == []


def test_error_in_a_later_part_reaches_the_caller() -> None:
    node = leading_node()
    long = node.driver.submit(creating_in_parts("a", "b"))
    node.quorum.refusal = BatchTooLarge("too large")
    node.loop.run_soon()
    error = long.exception()
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.POLICY_VIOLATION


def test_large_first_image_is_published_in_slices_before_later_ones() -> None:
    node = Node(large_image_partitions=0)
    for epoch, name in enumerate(("a", "b"), 1):
        node.quorum.write(epoch, [topic_frame(name, epoch)])
    first, second = node.quorum.tail
    node.quorum.tail = []
    node.quorum.high_watermark = node.quorum.log_end_offset
    node.driver.on_commit([first])
    node.driver.on_commit([second])
    node.quorum.write(2, [topic_frame("c", 3)])
    node.quorum.commit()
    assert node.publisher.images == []
    node.loop.run_soon()
    assert [image.topics.names() for image in node.publisher.images] == [["a", "b"], ["a", "b", "c"]]
    assert node.publisher.deltas[0].image.is_empty
    assert gc.isenabled()


def test_close_cancels_the_first_publication() -> None:
    node = Node(large_image_partitions=0)
    node.quorum.write(1, [topic_frame("a", 1)])
    node.quorum.write(1, [topic_frame("b", 2)])
    batches, node.quorum.high_watermark = node.quorum.tail, node.quorum.log_end_offset
    for batch in batches:
        node.driver.on_commit([batch])
    node.driver.close()
    node.loop.run_soon()
    assert node.publisher.images == []
    assert gc.isenabled()
