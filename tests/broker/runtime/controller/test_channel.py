"""The router to the active controller, local and remote, and the channel's requests."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE
from broker.net.peer import PeerError, PeerUnavailable, VersionMismatch
from broker.runtime.controller.broker_lifecycle import BrokerIdentity, BrokerLifecycle, BrokerState, LifecycleTimes
from broker.runtime.controller.channel import (
    ChannelTimes,
    ControllerChannel,
    ControllerUnavailable,
    LocalControllerChannel,
)
from broker.runtime.controller.controller_router import ControllerLocation, ControllerRouter
from broker.runtime.controller.driver import ControllerDriver
from broker.runtime.controller.producer_ids import ControllerBlocks, ProducerIds
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages import Message
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from protocol.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.broker.metadata.images import LISTENER, directory_of, endpoint, image_with, uuid
from tests.broker.runtime.controller.other_nodes import OWN, OWN_ID, SECOND, THIRD, OtherNodes
from tests.broker.runtime.controller.test_driver import DriverNode
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.fast_forward_loop import run_fast

BEAT = BrokerHeartbeatRequest(broker_id=OWN_ID, broker_epoch=5)


class StandbyDriver:
    """The controller of this node, which responds to heartbeats at once while active."""

    def __init__(self) -> None:
        self.is_active = False
        self.commands = 0
        self.is_stuck = False

    def submit(self, _command: object) -> "asyncio.Future[Any]":
        if not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        self.commands += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if not self.is_stuck:
            answer.set_result(BrokerHeartbeatResponse(is_caught_up=True))
        return answer


class ControllerChannelHarness:
    def __init__(self) -> None:
        self.nodes = OtherNodes()
        self.driver = StandbyDriver()
        driver = cast(ControllerDriver, self.driver)
        self.router = ControllerRouter(OWN_ID, driver, self.nodes.locate, self.nodes)
        self.channel = ControllerChannel(driver, self.router, ChannelTimes())
        self.times: list[float] = []
        loop = asyncio.get_running_loop()
        self.nodes.on_request = lambda: self.times.append(loop.time())

    def in_ms(self, milliseconds: float, action: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(milliseconds / 1000, action)

    def elect(self, leader: Any) -> None:
        self.nodes.leader = leader
        self.router.on_leader_change()


def fast(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on a loop that skips waiting."""

    def run() -> None:
        run_fast(test())

    run.__doc__ = test.__doc__
    return run


def always(outcome: Message | PeerError | None) -> Callable[[Any], Message | PeerError | None]:
    return lambda _request: outcome


NOT_CONTROLLER = BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)
HELLO = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)


@fast
async def test_request_reaches_a_remote_controller() -> None:
    harness = ControllerChannelHarness()
    harness.nodes.answers[SECOND] = always(HELLO)
    assert await harness.channel.heartbeat(BEAT) == HELLO
    assert harness.nodes.requests == [(SECOND, BEAT)]


@fast
async def test_request_reaches_the_active_local_controller() -> None:
    harness = ControllerChannelHarness()
    harness.driver.is_active = True
    assert (await harness.channel.heartbeat(BEAT)).is_caught_up
    assert (harness.driver.commands, harness.nodes.requests) == (1, [])


@fast
async def test_leader_change_triggers_an_immediate_retry() -> None:
    harness = ControllerChannelHarness()
    harness.nodes.answers = {SECOND: always(NOT_CONTROLLER), THIRD: always(HELLO)}
    for _ in range(6):
        harness.nodes.answers[SECOND] = always(NOT_CONTROLLER)
    harness.in_ms(1_001, lambda: harness.elect(THIRD))
    assert await harness.channel.heartbeat(BEAT) == HELLO
    assert harness.times[-1] - harness.times[0] == pytest.approx(1.001)
    gaps = [later - earlier for earlier, later in itertools.pairwise(harness.times)]
    assert gaps[:5] == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32]), "the router backs off"


@fast
async def test_new_leader_is_found_without_notification() -> None:
    harness = ControllerChannelHarness()
    harness.nodes.leader = None
    harness.nodes.answers[THIRD] = always(HELLO)
    harness.in_ms(1_000, lambda: setattr(harness.nodes, "leader", THIRD))
    assert await harness.channel.heartbeat(BEAT) == HELLO
    assert len(harness.nodes.requests) == 1


@fast
async def test_activation_of_this_node_ends_the_retries() -> None:
    harness = ControllerChannelHarness()
    harness.nodes.leader = None

    def become_active() -> None:
        harness.driver.is_active = True
        harness.router.on_leader_change()

    harness.in_ms(700, become_active)
    assert (await harness.channel.heartbeat(BEAT)).is_caught_up
    assert asyncio.get_running_loop().time() == pytest.approx(1000.7)


@fast
async def test_node_sends_no_requests_to_itself() -> None:
    nodes, driver = OtherNodes(), StandbyDriver()
    router = ControllerRouter(2, cast(ControllerDriver, driver), lambda: ControllerLocation(2, SECOND), nodes)
    with pytest.raises(ControllerUnavailable, match="is not active yet"):
        await ControllerChannel(cast(ControllerDriver, driver), router).heartbeat(BEAT)
    assert nodes.requests == []


@fast
async def test_hanging_controller_is_dropped_when_another_is_elected() -> None:
    harness = ControllerChannelHarness()
    harness.nodes.answers = {SECOND: always(None), THIRD: always(AllocateProducerIdsResponse(producer_id_len=1_000))}
    harness.in_ms(600, lambda: harness.elect(THIRD))
    granted = await harness.channel.allocate_producer_ids(AllocateProducerIdsRequest(OWN_ID, 5))
    assert granted.producer_id_len == 1_000
    assert harness.nodes.dropped == [SECOND]
    assert asyncio.get_running_loop().time() < 1000.7


@fast
async def test_hanging_controller_is_dropped_when_this_node_is_elected() -> None:
    harness = ControllerChannelHarness()
    harness.nodes.answers[SECOND] = always(None)

    def become_active() -> None:
        harness.driver.is_active = True
        harness.elect(OWN)

    harness.in_ms(600, become_active)
    assert (await harness.channel.heartbeat(BEAT)).is_caught_up
    assert asyncio.get_running_loop().time() < 1000.7


@fast
async def test_unknown_leader_keeps_its_connection() -> None:
    harness = ControllerChannelHarness()
    harness.nodes.answers[SECOND] = always(HELLO)
    await harness.channel.heartbeat(BEAT)
    harness.elect(None)
    harness.elect(SECOND)
    assert harness.nodes.dropped == []
    harness.elect(THIRD)
    assert harness.nodes.dropped == [SECOND]


@fast
async def test_heartbeat_is_retried_for_half_a_session() -> None:
    harness = ControllerChannelHarness()
    harness.nodes.answers[SECOND] = always(None)
    began = asyncio.get_running_loop().time()
    with pytest.raises(ControllerUnavailable, match="within 4500 ms"):
        await harness.channel.heartbeat(BEAT)
    assert asyncio.get_running_loop().time() - began == pytest.approx(4.5)
    assert len(harness.nodes.requests) == 3, "an attempt lasts one heartbeat interval"


@fast
async def test_timeout_reports_the_last_real_failure() -> None:
    harness = ControllerChannelHarness()
    harness.nodes.answers[SECOND] = lambda _request: PeerUnavailable("refused")
    with pytest.raises(ControllerUnavailable, match=r"within 4500 ms: refused$"):
        await harness.channel.heartbeat(BEAT)
    assert harness.times[-1] - harness.times[0] < 4.49, "no attempt without time"


@fast
async def test_local_controller_without_commit_times_out() -> None:
    harness = ControllerChannelHarness()
    harness.driver.is_active = harness.driver.is_stuck = True
    harness.nodes.answers[SECOND] = always(HELLO)
    harness.in_ms(2_010, lambda: setattr(harness.driver, "is_active", False))
    assert await harness.channel.heartbeat(BEAT) == HELLO


@fast
async def test_error_codes_are_final() -> None:
    harness = ControllerChannelHarness()
    harness.nodes.answers[SECOND] = always(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
        await harness.channel.heartbeat(BEAT)
    assert len(harness.nodes.requests) == 1


@fast
async def test_unknown_error_code_is_an_error() -> None:
    harness = ControllerChannelHarness()
    harness.nodes.answers[SECOND] = always(BrokerHeartbeatResponse(error_code=31_000))
    with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
        await harness.channel.heartbeat(BEAT)


@fast
async def test_unsupported_version_is_not_retried() -> None:
    harness = ControllerChannelHarness()
    harness.nodes.answers[SECOND] = always(VersionMismatch("served there in versions 0 to 2"))
    with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
        await harness.channel.register_broker(BrokerRegistrationRequest())
    assert (len(harness.nodes.requests), harness.nodes.sent_versions) == (1, [4])


@pytest.mark.parametrize(
    ("ask", "response"),
    [
        (lambda c: c.register_broker(BrokerRegistrationRequest()), BrokerRegistrationResponse(broker_epoch=7)),
        (lambda c: c.register_controller(ControllerRegistrationRequest()), ControllerRegistrationResponse()),
        (lambda c: c.assign_directories(AssignReplicasToDirsRequest()), AssignReplicasToDirsResponse()),
        (lambda c: c.allocate_producer_ids(AllocateProducerIdsRequest()), AllocateProducerIdsResponse(0, 0, 1, 9)),
        (lambda c: c.alter_partitions(AlterPartitionRequest()), AlterPartitionResponse()),
        (
            lambda c: c.create_topics(CreateTopicsRequest([CreatableTopic("t")])),
            CreateTopicsResponse(topics=[CreatableTopicResult("t")]),
        ),
    ],
    ids=["register", "register controller", "directories", "producer ids", "partitions", "topics"],
)
def test_every_request_reaches_a_remote_controller(
    ask: Callable[[ControllerChannel], Coroutine[Any, Any, Message]], response: Message
) -> None:
    async def scenario() -> None:
        harness = ControllerChannelHarness()
        outcomes: list[Message | PeerError] = [PeerUnavailable("reset"), response]
        harness.nodes.answers[SECOND] = lambda _request: outcomes.pop(0)
        assert await ask(harness.channel) == response
        assert len(harness.nodes.requests) == 2

    run_fast(scenario())


@fast
async def test_create_topics_is_retried_after_a_standby() -> None:
    harness = ControllerChannelHarness()
    refused = CreateTopicsResponse(topics=[CreatableTopicResult("t", error_code=ErrorCode.NOT_CONTROLLER)])
    exists = CreateTopicsResponse(topics=[CreatableTopicResult("t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)])
    harness.nodes.answers = {SECOND: always(refused), THIRD: always(exists)}
    harness.in_ms(50, lambda: harness.elect(THIRD))
    response = await harness.channel.create_topics(CreateTopicsRequest([CreatableTopic("t")]))
    assert response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@fast
async def test_controller_versions_are_those_of_the_active_controller() -> None:
    harness = ControllerChannelHarness()
    assert harness.router.controller_versions() == {19: (2, 2)}
    harness.elect(THIRD)
    assert harness.router.controller_versions() == {19: (3, 3)}
    harness.elect(None)
    assert harness.router.controller_versions() is None
    harness.elect(SECOND)
    harness.driver.is_active = True
    assert harness.router.controller_versions() is None, "the local controller has this program's versions"


@fast
async def test_producer_ids_come_from_a_remote_controller() -> None:
    harness = ControllerChannelHarness()
    harness.nodes.answers[SECOND] = always(AllocateProducerIdsResponse(producer_id_start=4_000, producer_id_len=1_000))
    ids = ProducerIds(ControllerBlocks(harness.channel, BrokerOf(77), OWN_ID))
    assert [await ids.next_id(), await ids.next_id()] == [4_000, 4_001]
    assert harness.nodes.requests == [(SECOND, AllocateProducerIdsRequest(OWN_ID, 77))]


@fast
async def test_producer_ids_without_a_controller_are_retriable() -> None:
    harness = ControllerChannelHarness()
    harness.nodes.leader = None
    ids = ProducerIds(ControllerBlocks(harness.channel, BrokerOf(77), OWN_ID))
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await ids.next_id()


class BrokerOf:
    def __init__(self, epoch: int) -> None:
        self.epoch = BrokerEpoch(epoch)


@fast
async def test_broker_heartbeats_the_new_controller_within_its_session() -> None:
    """The leader fails, and another node is elected three seconds later."""
    harness = ControllerChannelHarness()
    loop = asyncio.get_running_loop()
    beats: list[tuple[int, float]] = []
    found = asyncio.Event()

    def answer(node: int) -> Callable[[Any], Message]:
        def beat(request: Any) -> Message:
            if isinstance(request, BrokerRegistrationRequest):
                return BrokerRegistrationResponse(broker_epoch=OWN_ID)
            beats.append((node, loop.time()))
            if node == 3:
                found.set()
            return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=request.want_fence)

        return beat

    harness.nodes.answers = {SECOND: answer(2), THIRD: answer(3)}
    identity = BrokerIdentity(BrokerId(OWN_ID), "c", uuid(77), {LISTENER: endpoint(1)}, {}, (directory_of(1),))
    lifecycle = BrokerLifecycle(identity, harness.channel, clock=ManualClock(), times=LifecycleTimes())
    running = loop.create_task(lifecycle.run())
    await lifecycle.wait_caught_up()
    lifecycle.become_ready()
    lifecycle.on_metadata(MetadataDelta(EMPTY_IMAGE), image_with(brokers=[OWN_ID]))
    await lifecycle.wait_unfenced()
    last = beats[-1][1]
    harness.nodes.answers[SECOND] = always(None)  # hangs without a reset
    harness.in_ms(3_000, lambda: harness.elect(THIRD))
    await found.wait()
    assert beats[-1][1] - last < 5
    assert lifecycle.state is BrokerState.RUNNING
    await lifecycle.shut_down(controlled=False)
    await running


def test_local_controller_allocates_blocks_to_registered_brokers_only() -> None:
    node = DriverNode().start()
    with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
        LocalControllerChannel(node.driver).allocate_producer_ids(AllocateProducerIdsRequest(1, 5))
