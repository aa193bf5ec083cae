"""Openings: how many connections a turn of the loop sets up, in which order, and when accepting pauses."""

from functools import partial

import pytest

from broker.net.openings import OPENED_PER_TURN, WAITING_MAX, Openings
from tests.broker.net.fakes import ManualTimers


class World:
    """Openings of numbered sockets."""

    def __init__(self) -> None:
        self.timers = ManualTimers()
        self.opened: list[int] = []
        self.resumed = 0
        self.failing: set[int] = set()
        self.openings = Openings(self.timers, self._on_room)

    def accept(self, *numbers: int) -> None:
        for number in numbers:
            self.openings.add(partial(self._set_up, number))

    def _set_up(self, number: int) -> None:
        if number in self.failing:
            raise OSError(number)
        self.opened.append(number)

    def _on_room(self) -> None:
        assert not self.openings.is_full()
        self.resumed += 1


def test_lone_connection_is_set_up_at_once() -> None:
    world = World()
    world.accept(1)
    assert world.opened == [1]


def test_turn_sets_up_a_few_connections_and_the_next_turns_set_up_the_others_in_order() -> None:
    world = World()
    world.accept(*range(3 * OPENED_PER_TURN))
    for turn in range(1, 4):
        assert world.opened == list(range(turn * OPENED_PER_TURN))
        world.timers.run_soon()
    world.timers.run_soon()
    assert world.timers.soon == []


def test_socket_that_is_accepted_while_others_wait_is_behind_them() -> None:
    world = World()
    world.accept(*range(OPENED_PER_TURN + 1))
    world.timers.run_soon()
    world.accept(*range(OPENED_PER_TURN + 1, 2 * OPENED_PER_TURN + 2))
    world.timers.run_soon()
    assert world.opened == list(range(2 * OPENED_PER_TURN + 2))


def test_new_turn_sets_up_connections_at_once_again() -> None:
    world = World()
    world.accept(*range(OPENED_PER_TURN))
    world.timers.run_soon()
    world.accept(OPENED_PER_TURN)
    assert world.opened == list(range(OPENED_PER_TURN + 1))


def test_accepting_pauses_while_too_many_wait_and_continues_once() -> None:
    world = World()
    world.accept(*range(OPENED_PER_TURN + WAITING_MAX - 1))
    assert not world.openings.is_full()
    world.accept(-1)
    assert world.openings.is_full()
    world.timers.run_soon()
    world.timers.run_soon()
    assert world.resumed == 1


def test_connections_behind_one_that_fails_are_set_up_in_the_next_turn() -> None:
    world = World()
    world.failing = {OPENED_PER_TURN}
    world.accept(*range(OPENED_PER_TURN + 2))
    with pytest.raises(OSError, match=str(OPENED_PER_TURN)):
        world.timers.run_soon()
    world.timers.run_soon()
    assert world.opened[-1] == OPENED_PER_TURN + 1
