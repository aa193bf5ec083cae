"""Tests of simulated time, processes, file work and network."""

from collections.abc import Callable
from random import Random

import pytest

from broker.quorum.identity import SocketAddress
from broker.quorum.messages import ProbeRequest, ProbeResponse, Request, Response, SendFailure
from protocol.errors import ErrorCode
from tests.simulation.quorum.network import Network, Outcome
from tests.simulation.weather import Weather
from tests.simulation.world import EndlessLoop, PowerFailure, Process, SimulatedIo, World

HERE, THERE = SocketAddress("here", 1), SocketAddress("there", 1)


class Silence:
    """A witness that does nothing."""

    def on_request_leaves(self, sender: int, request: Request) -> None: ...

    def on_response_leaves(self, sender: int, request: Request, response: Response) -> None: ...

    def on_request_arrives(self, receiver: int, request: Request) -> None:
        """Ignore the request."""

    def on_response_arrives(self, receiver: int, request: Request, response: Response) -> None:
        """Ignore the response."""


class Echo:
    """A server that responds at once and counts requests."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.received = 0

    def receive(self, request: Request, answer: Callable[[Response], None]) -> None:
        self.received += 1
        answer(ProbeResponse(ErrorCode.NONE))


def run(world: World) -> None:
    while world.step():
        pass


def test_events_run_in_the_order_of_their_times() -> None:
    world, seen = World(), list[str]()
    world.schedule(20.0, seen.append, "later")
    world.schedule(10.0, seen.append, "sooner")
    world.schedule(10.0, seen.append, "at the same time")
    run(world)
    assert seen == ["sooner", "at the same time", "later"]
    assert world.now_ms == 20.0
    assert world.is_idle


def test_fast_clock_fires_timers_early() -> None:
    world, moments = World(), dict[str, float]()
    fast, slow = Process(world, 1, rate=1.25), Process(world, 2, rate=0.8)
    fast.call_later(1.0, lambda: moments.update(fast=world.now_ms))
    slow.call_later(1.0, lambda: moments.update(slow=world.now_ms))
    run(world)
    assert moments == pytest.approx({"fast": 800.0, "slow": 1_250.0})


def test_timers_fire_early_unless_they_are_set_for_the_rest_of_their_time() -> None:
    world, moments = World(early_ms=0.5), list[float]()
    process = Process(world, 1)

    def fire() -> None:
        moments.append(world.now_ms)
        if len(moments) == 1:
            process.call_at(0.010, fire)

    process.call_at(0.010, fire)
    run(world)
    assert moments == pytest.approx([9.5, 10.0])


def test_soon_calls_belong_to_the_same_event() -> None:
    world, seen = World(), list[int]()
    process = Process(world, 1)
    world.schedule(1.0, lambda: process.call_soon(lambda: process.call_soon(seen.append, 1)), process=process)
    assert world.step()
    assert seen == [1]


def test_endless_event_is_detected() -> None:
    world = World()
    process = Process(world, 1)

    def again() -> None:
        process.call_soon(again)

    world.schedule(1.0, again, process=process)
    with pytest.raises(EndlessLoop):
        world.step()


def test_dead_process_runs_no_events_and_stalled_process_runs_them_later() -> None:
    world, seen = World(), list[tuple[int, float]]()
    dead, stalled = Process(world, 1), Process(world, 2)
    for process in (dead, stalled):
        process.call_later(0.01, lambda process=process: seen.append((process.node_id, world.now_ms)))
    dead.die()
    stalled.stalled_until_ms = 500.0
    run(world)
    assert seen == [(2, 500.0)]


def test_file_work_runs_in_order_as_separate_events() -> None:
    world, done = World(), list[int]()
    process = Process(world, 1)
    io = SimulatedIo(process, Random(1), inline_share=0.0, delay_ms=5.0)
    for number in range(3):
        io.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    assert done == []
    world.step()
    assert done == [0]
    run(world)
    assert done == [0, 1, 2]


def test_power_fails_in_the_middle_of_file_work() -> None:
    world = World()
    process = Process(world, 1)
    io = SimulatedIo(process, Random(1), inline_share=0.0, delay_ms=5.0)

    def work() -> None:
        raise PowerFailure

    future = io.submit(work)
    with pytest.raises(PowerFailure):
        world.step()
    assert not future.done()


def exchange(
    weather: Weather, *, count: int = 1, blocked: frozenset[tuple[int, int]] = frozenset()
) -> tuple[int, list[Outcome]]:
    """Send requests from node 1 to node 2; return the number that arrived, and the outcome of each."""
    world = World()
    network = Network(world, Random(3), Silence())
    network.weather = weather
    network.block(blocked)
    sender, server = Process(world, 1), Echo(Process(world, 2))
    network.listen(THERE, server)
    outcomes: list[Outcome] = []
    for _ in range(count):
        network.send(sender, THERE, ProbeRequest(), 1_000.0, outcomes.append)
    run(world)
    return server.received, outcomes


def test_every_request_has_one_outcome_for_its_sender() -> None:
    received, outcomes = exchange(Weather(lost=0.2, twice=0.5, slow=0.2, slow_ms=2_000.0), count=200)
    assert len(outcomes) == 200
    answered = sum(isinstance(outcome, ProbeResponse) for outcome in outcomes)
    assert 0 < answered < 200
    assert received > answered


def test_links_fail_in_one_direction_at_a_time() -> None:
    failed = [SendFailure(ErrorCode.BROKER_NOT_AVAILABLE)]
    assert exchange(Weather(), blocked=frozenset({(1, 2)})) == (0, failed)
    assert exchange(Weather(), blocked=frozenset({(2, 1)})) == (1, failed)
    assert exchange(Weather())[0] == 1


def test_request_to_unused_address_fails_quickly() -> None:
    world = World()
    network = Network(world, Random(3), Silence())
    outcomes: list[Outcome] = []
    network.send(Process(world, 1), HERE, ProbeRequest(), 60_000.0, outcomes.append)
    run(world)
    assert outcomes == [SendFailure(ErrorCode.BROKER_NOT_AVAILABLE, is_refusal=True)]
    assert world.now_ms < 60_000.0 or world.is_idle


def test_skipped_time_passes_on_every_clock_without_events() -> None:
    world = World()
    process, suspended = Process(world, 1), Process(world, 2)
    fired: list[float] = []
    process.call_later(1.0, lambda: fired.append(world.now_ms))
    world.skip(3_600_000.0)
    suspended.miss(3_600_000.0)
    assert (process.monotonic_ms(), suspended.monotonic_ms()) == (3_600_000.0, 0.0)
    assert fired == []
    world.step()
    assert fired == [3_601_000.0]


def test_stepped_wall_clock_leaves_the_monotonic_clock_alone() -> None:
    process = Process(World(), 1, wall_offset_ms=10_000)
    process.step_wall_clock(-4_000)
    assert (process.now_ms(), process.monotonic_ms()) == (6_000, 0.0)


def test_stalled_disk_completes_nothing_until_the_stall_ends() -> None:
    world = World()
    io = SimulatedIo(Process(world, 1), Random(1), inline_share=1.0, delay_ms=5.0)
    io.stalled_until_ms = 2_000.0
    future = io.submit(lambda: 7)
    assert not future.done()
    world.step()
    assert future.result() == 7
    assert world.now_ms >= 2_000.0
