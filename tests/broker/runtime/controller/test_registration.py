"""Registration of a controller by itself."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.features import SUPPORTED_FEATURES
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage
from broker.metadata.image.metadata_version import METADATA_VERSION
from broker.runtime.controller.controller_router import ControllerUnavailable
from broker.runtime.controller.registration import ControllerIdentity, ControllerRegistrar
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from protocol.messages.metadata_records import FeatureLevelRecord, RegisterControllerRecord
from tests.broker.metadata.images import endpoint, uuid
from tests.support.fakes.fast_forward_loop import run_fast

IDENTITY = ControllerIdentity(3, uuid(33), {"CONTROLLER": endpoint(3)}, SUPPORTED_FEATURES)
KNOWS_CONTROLLERS, OLDER = 15, 14


class RegistrationHarness:
    """An image that shows the registration once the active controller accepts, after scripted refusals."""

    def __init__(self, *refusals: Exception, level: int = KNOWS_CONTROLLERS) -> None:
        self.registrar = ControllerRegistrar(IDENTITY, self)
        self.refusals = list(refusals)
        self.requests: list[tuple[float, ControllerRegistrationRequest]] = []
        self.image: MetadataImage = EMPTY_IMAGE
        self.publishes = True
        self.publish(FeatureLevelRecord(METADATA_VERSION, level))

    def publish(self, record: FeatureLevelRecord | RegisterControllerRecord) -> None:
        delta = MetadataDelta(self.image)
        delta.replay_all([record])
        self.image = delta.apply(self.image.provenance)
        self.registrar.on_metadata(delta, self.image)

    async def register_controller(self, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
        self.requests.append((asyncio.get_running_loop().time(), request))
        if self.refusals:
            raise self.refusals.pop(0)
        if self.publishes:
            self.publish(RegisterControllerRecord(controller_id=3, incarnation_id=request.incarnation_id))
        return ControllerRegistrationResponse()

    @property
    def gaps(self) -> list[float]:
        times = [time for time, _ in self.requests]
        return [later - earlier for earlier, later in itertools.pairwise(times)]

    async def run_for(self, seconds: float) -> "RegistrationHarness":
        running = asyncio.ensure_future(self.registrar.run())
        await asyncio.sleep(seconds)
        running.cancel()
        return self


def fast(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test on a loop that skips waiting."""

    def run() -> None:
        async def scenario() -> None:
            await test()

        run_fast(scenario())

    return run


@fast
async def test_controller_registers_once_with_its_identity() -> None:
    harness = await RegistrationHarness().run_for(600)
    ((_, request),) = harness.requests
    assert (request.controller_id, request.incarnation_id) == (3, uuid(33))
    assert [(each.name, each.host, each.port) for each in request.listeners] == [("CONTROLLER", "host-3", 9003)]
    assert {each.name for each in request.features} == set(SUPPORTED_FEATURES)


@fast
async def test_refused_registration_is_retried_with_growing_pauses() -> None:
    refusals = [KafkaError(ErrorCode.NOT_CONTROLLER), ControllerUnavailable("no quorum")] * 6
    harness = await RegistrationHarness(*refusals).run_for(600)
    assert len(harness.requests) == 13
    assert harness.gaps == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 120])


@fast
async def test_registration_is_repeated_until_the_image_shows_it() -> None:
    harness = RegistrationHarness()
    harness.publishes = False
    await harness.run_for(0.35)
    assert len(harness.requests) == 3


@fast
async def test_registration_of_a_previous_incarnation_is_replaced() -> None:
    harness = RegistrationHarness()
    harness.publish(RegisterControllerRecord(controller_id=3, incarnation_id=uuid(1)))
    await harness.run_for(1)
    assert len(harness.requests) == 1


@fast
async def test_present_registration_is_not_repeated() -> None:
    harness = RegistrationHarness()
    harness.publish(RegisterControllerRecord(controller_id=3, incarnation_id=uuid(33)))
    await harness.run_for(1)
    assert harness.requests == []


@fast
async def test_lost_registration_is_repeated() -> None:
    harness = RegistrationHarness()
    asyncio.get_running_loop().call_later(
        5, harness.publish, RegisterControllerRecord(controller_id=3, incarnation_id=uuid(1))
    )
    await harness.run_for(10)
    assert harness.gaps == pytest.approx([5])


@fast
async def test_registration_waits_for_the_metadata_version() -> None:
    harness = RegistrationHarness(level=OLDER)
    asyncio.get_running_loop().call_later(5, harness.publish, FeatureLevelRecord(METADATA_VERSION, KNOWS_CONTROLLERS))
    began = asyncio.get_running_loop().time()
    await harness.run_for(10)
    assert [time - began for time, _ in harness.requests] == pytest.approx([5])
