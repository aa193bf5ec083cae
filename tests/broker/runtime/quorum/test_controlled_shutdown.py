"""When a stopping voter may leave the quorum (`broker.runtime.quorum.controlled_shutdown`)."""

import asyncio
from collections.abc import Callable

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage
from broker.runtime.quorum.controlled_shutdown import (
    LIMIT_MS,
    LINGER_MS,
    ShutdownDecision,
    VoterShutdown,
    can_elect_without,
    shutdown_decision,
)
from protocol.messages.metadata_records import BrokerRegistrationChangeRecord
from tests.broker.metadata.images import image_of, image_with
from tests.support.fakes.fast_forward_loop import run_fast

ALL = (1, 2, 3)
IN_CONTROLLED_SHUTDOWN = 1


def leaving(image: MetadataImage, broker: int) -> MetadataImage:
    """Return the image with a broker in controlled shutdown."""
    record = BrokerRegistrationChangeRecord(
        broker_id=broker, broker_epoch=broker, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN
    )
    return image_of([record], image)


def advice(*, fenced: tuple[int, ...], node_id: int = 1, voters: tuple[int, ...] = ALL) -> ShutdownDecision:
    return shutdown_decision(image_with(brokers=ALL, fenced=fenced).brokers, voters, node_id)


class TestShutdownDecision:
    def test_first_of_three_voters_may_leave(self) -> None:
        assert advice(fenced=(1,)) is ShutdownDecision.LEAVE

    def test_voter_waits_until_its_own_fencing_is_visible(self) -> None:
        assert advice(fenced=()) is ShutdownDecision.WAIT

    def test_second_voter_lingers_for_an_active_third_broker(self) -> None:
        assert advice(fenced=(1, 2)) is ShutdownDecision.LINGER

    def test_second_voter_waits_for_a_third_in_controlled_shutdown(self) -> None:
        image = leaving(image_with(brokers=ALL, fenced=(1, 2)), 3)
        assert shutdown_decision(image.brokers, ALL, 1) is ShutdownDecision.WAIT

    def test_last_voter_may_leave(self) -> None:
        assert advice(fenced=ALL) is ShutdownDecision.LEAVE

    def test_observer_may_leave(self) -> None:
        assert advice(fenced=(1,), voters=(2, 3)) is ShutdownDecision.LEAVE

    def test_only_voter_lingers_for_other_brokers(self) -> None:
        assert advice(fenced=(1,), voters=(1,)) is ShutdownDecision.LINGER

    def test_voters_without_a_broker_count_as_running(self) -> None:
        assert advice(fenced=(1,), voters=(1, 11, 12)) is ShutdownDecision.LEAVE
        assert advice(fenced=(), voters=(11, 12, 13), node_id=11) is ShutdownDecision.LEAVE


def waited_ms(check: Callable[[VoterShutdown], None]) -> int:
    """Return how long node 1 waits while `check` publishes images."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        shutdown = VoterShutdown(1, lambda: ALL)
        check(shutdown)
        begun = loop.time()
        await shutdown.wait()
        return loop.time() - begun

    return round(run_fast(main()) * 1000)


def publish(shutdown: VoterShutdown, image: MetadataImage) -> None:
    shutdown.on_metadata(MetadataDelta(EMPTY_IMAGE), image)


def later(ms: int, shutdown: VoterShutdown, image: MetadataImage) -> None:
    asyncio.get_running_loop().call_later(ms / 1000, publish, shutdown, image)


class TestWaiting:
    def test_wait_returns_at_once_if_the_voter_may_leave(self) -> None:
        assert waited_ms(lambda shutdown: publish(shutdown, image_with(brokers=ALL, fenced=(1,)))) == 0

    def test_wait_lingers_for_active_brokers(self) -> None:
        second = image_with(brokers=ALL, fenced=(1, 2))
        assert waited_ms(lambda shutdown: publish(shutdown, second)) == LINGER_MS

    def test_wait_lasts_until_brokers_in_controlled_shutdown_are_fenced(self) -> None:
        second = image_with(brokers=ALL, fenced=(1, 2))

        def check(shutdown: VoterShutdown) -> None:
            publish(shutdown, second)
            later(200, shutdown, leaving(second, 3))
            later(900, shutdown, image_with(brokers=ALL, fenced=ALL))

        assert waited_ms(check) == 900

    def test_wait_ends_at_its_limit(self) -> None:
        second = leaving(image_with(brokers=ALL, fenced=(1, 2)), 3)
        assert waited_ms(lambda shutdown: publish(shutdown, second)) == LIMIT_MS


def test_election_needs_two_of_three_voters() -> None:
    def can_elect(fenced: tuple[int, ...]) -> bool:
        return can_elect_without(1, image_with(brokers=ALL, fenced=fenced).brokers, frozenset(ALL))

    assert can_elect((1,))
    assert not can_elect((1, 2))
