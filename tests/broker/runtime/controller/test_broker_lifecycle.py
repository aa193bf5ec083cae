"""A broker's membership: registration, catching up, readiness, heartbeats, controlled shutdown."""

import asyncio
from collections import deque
from collections.abc import Callable

import pytest
from immutables import Map

from broker.metadata.image.cluster_image import ClusterImage
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, Provenance
from broker.runtime.controller.broker_lifecycle import (
    BrokerIdentity,
    BrokerLifecycle,
    BrokerState,
    DirectoryFailureUnreported,
    LifecycleTimes,
    RegistrationTimedOut,
)
from broker.runtime.controller.channel import ControllerUnavailable, LocalControllerChannel
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from tests.broker.metadata.images import LISTENER, directory_of, endpoint, image_with, uuid
from tests.broker.runtime.controller.test_driver import DriverNode
from tests.support.fakes.clock import ManualClock

EPOCH = 42
IDENTITY = BrokerIdentity(BrokerId(1), "test-cluster", uuid(77), {LISTENER: endpoint(1)}, {}, (directory_of(1),))


class ScriptedController:
    """Responds to registrations from a script and to heartbeats by the rules, and records requests.

    Every exchange advances the clock a little, so that tests need no sleeps.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.registrations: list[BrokerRegistrationRequest] = []
        self.heartbeats: list[BrokerHeartbeatRequest] = []
        self.refusals: deque[ErrorCode | ControllerUnavailable] = deque()
        self.beat_failures: deque[ErrorCode | ControllerUnavailable] = deque()
        self.leads = 0
        self.on_heartbeat: Callable[[BrokerHeartbeatRequest], None] = lambda _request: None

    async def register_broker(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        self.registrations.append(request)
        self.clock.advance_ms(1_000)
        if self.refusals:
            raise _failure(self.refusals.popleft())
        return BrokerRegistrationResponse(broker_epoch=EPOCH)

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        self.heartbeats.append(request)
        self.on_heartbeat(request)
        if self.beat_failures:
            raise _failure(self.beat_failures.popleft())
        caught_up = request.current_metadata_offset >= EPOCH
        if request.want_shut_down:
            self.leads -= 1
            return BrokerHeartbeatResponse(is_caught_up=caught_up, should_shut_down=self.leads < 0)
        return BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=request.want_fence or not caught_up)


def _failure(failure: ErrorCode | ControllerUnavailable) -> KafkaError | ControllerUnavailable:
    return failure if isinstance(failure, ControllerUnavailable) else KafkaError(failure)


class BrokerLifecycleHarness:
    def __init__(self, *, heartbeat_interval_ms: int = 600_000) -> None:
        self.clock = ManualClock()
        self.controller = ScriptedController(self.clock)
        times = LifecycleTimes(heartbeat_interval_ms, session_timeout_ms=2, registration_timeout_ms=5_000)
        self.lifecycle = BrokerLifecycle(IDENTITY, self.controller, clock=self.clock, times=times)
        self.task = asyncio.get_running_loop().create_task(self.lifecycle.run())

    def publish(self, offset: int, *, fenced: bool = False, epoch: int = EPOCH) -> None:
        """Publish metadata up to `offset`, in which broker 1 is registered."""
        own = image_with().brokers.brokers[1]._replace(fenced=fenced, epoch=BrokerEpoch(epoch))
        image = EMPTY_IMAGE._replace(
            provenance=Provenance(offset, LeaderEpoch(1), 0), brokers=ClusterImage(Map({1: own}))
        )
        self.lifecycle.on_metadata(MetadataDelta(EMPTY_IMAGE), image)

    async def reach_running(self) -> None:
        self.publish(EPOCH)
        async with asyncio.timeout(60):
            await self.lifecycle.wait_caught_up()
            self.lifecycle.become_ready()
            await self.lifecycle.wait_unfenced()

    async def shut_down(self) -> None:
        async with asyncio.timeout(60):
            await self.lifecycle.shut_down()
            await self.task


async def test_states_advance_to_running() -> None:
    harness = BrokerLifecycleHarness()
    states = [harness.lifecycle.state]
    harness.controller.on_heartbeat = lambda _request: states.append(harness.lifecycle.state)
    await harness.reach_running()
    states.append(harness.lifecycle.state)
    assert list(dict.fromkeys(states)) == [
        BrokerState.NOT_RUNNING,
        BrokerState.STARTING,
        BrokerState.RECOVERY,
        BrokerState.RUNNING,
    ]
    await harness.shut_down()
    assert harness.lifecycle.state is BrokerState.SHUTTING_DOWN


async def test_broker_serves_once_its_own_metadata_shows_it_unfenced() -> None:
    """The heartbeat response may precede the broker's own log; clients would then see no broker."""
    harness = BrokerLifecycleHarness()
    harness.publish(EPOCH, fenced=True)
    await harness.lifecycle.wait_caught_up()
    harness.lifecycle.become_ready()
    serving = asyncio.get_running_loop().create_task(harness.lifecycle.wait_unfenced())
    allowed = asyncio.Event()
    harness.controller.on_heartbeat = lambda request: None if request.want_fence else allowed.set()
    await allowed.wait()
    await asyncio.sleep(0)
    for fenced, epoch in ((True, EPOCH), (False, EPOCH - 1)):
        harness.publish(EPOCH + 1, fenced=fenced, epoch=epoch)
        await asyncio.sleep(0)
        assert not serving.done()
    harness.publish(EPOCH + 2)
    async with asyncio.timeout(60):
        await serving
    await harness.shut_down()


async def test_registration_holds_the_identity() -> None:
    harness = BrokerLifecycleHarness()
    await harness.reach_running()
    (request,) = harness.controller.registrations
    assert (request.broker_id, request.cluster_id, request.incarnation_id) == (1, "test-cluster", uuid(77))
    assert [(each.name, each.host, each.port) for each in request.listeners] == [(LISTENER, "host-1", 9001)]
    assert (request.log_dirs, request.previous_broker_epoch) == ([directory_of(1)], -1)
    assert harness.lifecycle.epoch == EPOCH
    await harness.shut_down()


async def test_heartbeats_request_fencing_until_ready_and_report_the_offset() -> None:
    harness = BrokerLifecycleHarness()
    await harness.reach_running()
    first, last = harness.controller.heartbeats[0], harness.controller.heartbeats[-1]
    assert (first.want_fence, last.want_fence) == (True, False)
    assert (last.broker_epoch, last.current_metadata_offset) == (EPOCH, EPOCH)
    await harness.shut_down()


async def test_broker_is_not_caught_up_before_its_registration_is_published() -> None:
    harness = BrokerLifecycleHarness()
    seen = asyncio.Event()
    harness.publish(EPOCH - 1)
    harness.controller.on_heartbeat = lambda _request: seen.set()
    await seen.wait()
    assert harness.lifecycle.state is BrokerState.STARTING
    await harness.reach_running()
    await harness.shut_down()


async def test_refused_registration_is_retried() -> None:
    harness = BrokerLifecycleHarness()
    harness.controller.refusals += [ErrorCode.DUPLICATE_BROKER_REGISTRATION, ControllerUnavailable("no answer")]
    await harness.reach_running()
    assert len(harness.controller.registrations) == 3
    await harness.shut_down()


async def test_registration_times_out() -> None:
    harness = BrokerLifecycleHarness()
    harness.controller.refusals += [ErrorCode.INCONSISTENT_CLUSTER_ID] * 10
    with pytest.raises(RegistrationTimedOut):
        await harness.task
    assert len(harness.controller.registrations) == 5


async def test_failed_heartbeats_are_retried() -> None:
    harness = BrokerLifecycleHarness()
    harness.controller.beat_failures += [ControllerUnavailable("no answer"), ErrorCode.NOT_CONTROLLER]
    await harness.reach_running()
    assert len(harness.controller.heartbeats) >= 4
    await harness.shut_down()


async def test_lost_registration_is_repeated() -> None:
    harness = BrokerLifecycleHarness(heartbeat_interval_ms=1)
    await harness.reach_running()
    harness.controller.beat_failures.append(ErrorCode.STALE_BROKER_EPOCH)
    again = asyncio.Event()

    def watch(_request: BrokerHeartbeatRequest) -> None:
        if len(harness.controller.registrations) == 2:
            again.set()

    harness.controller.on_heartbeat = watch
    await again.wait()
    assert harness.lifecycle.state is BrokerState.RUNNING
    await harness.shut_down()


async def test_offline_directory_is_reported_at_once_and_repeatedly() -> None:
    harness = BrokerLifecycleHarness()
    await harness.reach_running()
    reported = asyncio.Event()

    def watch(request: BrokerHeartbeatRequest) -> None:
        if request.offline_log_dirs == [directory_of(1)]:
            reported.set()

    harness.controller.on_heartbeat = watch
    harness.lifecycle.on_directory_failure(directory_of(1))
    await reported.wait()
    await harness.shut_down()
    assert harness.controller.heartbeats[-1].offline_log_dirs == [directory_of(1)]


async def test_unreported_directory_failure_ends_the_node() -> None:
    harness = BrokerLifecycleHarness()
    await harness.reach_running()

    def refuse(_request: BrokerHeartbeatRequest) -> None:
        harness.controller.beat_failures.append(ErrorCode.REQUEST_TIMED_OUT)
        harness.clock.advance_ms(15_000)

    harness.controller.on_heartbeat = refuse
    harness.lifecycle.on_directory_failure(directory_of(1))
    async with asyncio.timeout(60):
        with pytest.raises(DirectoryFailureUnreported):
            await harness.task
    failed = [request for request in harness.controller.heartbeats if request.offline_log_dirs]
    assert len(failed) == 2  # 15 and 30 seconds after


async def test_reported_directory_failure_does_not_end_the_node() -> None:
    harness = BrokerLifecycleHarness(heartbeat_interval_ms=1)
    await harness.reach_running()
    harness.lifecycle.on_directory_failure(directory_of(1))
    beats: list[BrokerHeartbeatRequest] = []
    failed_later = asyncio.Event()

    def note(request: BrokerHeartbeatRequest) -> None:
        beats.extend([request] if request.offline_log_dirs else [])
        if len(beats) == 2:
            harness.clock.advance_ms(60_000)
            harness.controller.beat_failures.append(ErrorCode.REQUEST_TIMED_OUT)
        elif len(beats) == 3:
            failed_later.set()

    harness.controller.on_heartbeat = note
    async with asyncio.timeout(60):
        await failed_later.wait()
    assert not harness.task.done()
    await harness.shut_down()


async def test_offline_directory_is_left_out_of_later_registrations() -> None:
    harness = BrokerLifecycleHarness(heartbeat_interval_ms=1)
    await harness.reach_running()
    harness.lifecycle.on_directory_failure(directory_of(1))
    harness.controller.beat_failures.append(ErrorCode.STALE_BROKER_EPOCH)
    again = asyncio.Event()

    def watch(_request: BrokerHeartbeatRequest) -> None:
        if len(harness.controller.registrations) == 2:
            again.set()

    harness.controller.on_heartbeat = watch
    async with asyncio.timeout(60):
        await again.wait()
    assert [request.log_dirs for request in harness.controller.registrations] == [[directory_of(1)], []]
    await harness.shut_down()


async def test_controlled_shutdown_waits_until_leaders_moved() -> None:
    harness = BrokerLifecycleHarness()
    await harness.reach_running()
    harness.controller.leads = 2
    await harness.shut_down()
    wanting = [request for request in harness.controller.heartbeats if request.want_shut_down]
    assert len(wanting) == 3


async def test_uncontrolled_shutdown_ends_at_once() -> None:
    harness = BrokerLifecycleHarness()
    await harness.reach_running()
    before = len(harness.controller.heartbeats)
    await harness.lifecycle.shut_down(controlled=False)
    await harness.task
    assert not any(request.want_shut_down for request in harness.controller.heartbeats[before:])


async def test_broker_that_never_ran_shuts_down_at_once() -> None:
    harness = BrokerLifecycleHarness()
    harness.controller.refusals += [ErrorCode.NOT_CONTROLLER] * 3
    await harness.shut_down()
    assert harness.lifecycle.state is BrokerState.SHUTTING_DOWN


async def test_controlled_shutdown_ends_without_a_controller_for_half_a_session() -> None:
    harness = BrokerLifecycleHarness()
    await harness.reach_running()
    harness.controller.leads = 2
    harness.controller.beat_failures += [ControllerUnavailable("no quorum")] * 50
    harness.controller.on_heartbeat = lambda _request: harness.clock.advance_ms(1)
    await harness.shut_down()
    assert 1 <= len(harness.controller.beat_failures) < 50, "the session of this test is 2 ms"


class TestLocalChannel:
    """The inactive controller in the same process."""

    async def test_inactive_local_controller_refuses_at_once(self) -> None:
        channel = LocalControllerChannel(DriverNode().driver)
        for refused in (
            lambda: channel.register_broker(BrokerRegistrationRequest()),
            lambda: channel.heartbeat(BrokerHeartbeatRequest()),
        ):
            with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
                refused()
