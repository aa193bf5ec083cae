"""Deferred writes: when the responses of several connections are written, and that none is lost."""

import pytest

from broker.net.deferred_writes import WAIT_MAX_MS
from tests.broker.net.fakes import Broker, ConnectionHarness, Peer, frame, numbers_in

LIMIT = 4


class World:
    """Connections of a server that writes the responses of LIMIT of them together. Requests are numbered as peers."""

    def __init__(self, count: int) -> None:
        self.broker = Broker()
        self.harness = ConnectionHarness(self.broker, writes_together=LIMIT)
        self.peers = [self.harness.connect() for _ in range(count)]

    def send(self, *numbers: int) -> None:
        for number in numbers:
            self.peers[number].send(frame(number))

    def end_turn(self) -> None:
        self.harness.timers.run_soon()

    @property
    def answered(self) -> list[int]:
        """The peers that have a response."""
        return [number for number, peer in enumerate(self.peers) if peer.received]


class TestTurn:
    def test_first_response_of_a_turn_is_written_at_once(self) -> None:
        world = World(3)
        world.send(1, 0)
        assert world.answered == [1]

    def test_other_responses_are_written_at_the_end_of_the_turn(self) -> None:
        world = World(3)
        world.send(0, 1, 2)
        assert world.broker.begun == [0, 1, 2]
        world.end_turn()
        assert world.answered == [0, 1, 2]
        assert not world.harness.timers.soon

    def test_next_turn_begins_with_a_response_that_is_written_at_once(self) -> None:
        world = World(2)
        world.send(0)
        world.end_turn()
        world.send(1)
        assert world.answered == [0, 1]

    def test_full_set_of_connections_is_written_before_the_end_of_the_turn(self) -> None:
        world = World(LIMIT + 2)
        world.send(*range(LIMIT))
        assert world.answered == [0]
        world.send(LIMIT, LIMIT + 1)
        assert world.answered == list(range(LIMIT + 1))

    def test_response_waits_for_a_millisecond_and_one_request_at_most(self) -> None:
        world = World(3)
        world.send(0, 1)
        world.harness.clock.advance_ms(int(WAIT_MAX_MS))
        world.send(2)
        assert world.answered == [0, 1, 2]

    def test_requests_of_one_connection_are_answered_in_order(self) -> None:
        world = World(2)
        world.send(0)
        world.peers[1].send(frame(5) + frame(6))
        world.peers[1].send(frame(7))
        world.end_turn()
        assert world.peers[1].answers == [5, 6, 7]

    async def test_response_that_was_not_ready_follows_the_deferred_one(self) -> None:
        world = World(2)
        world.broker.later = {8}
        world.send(0)
        world.peers[1].send(frame(7) + frame(8))
        assert not world.peers[1].received
        await world.broker.finish(8)
        assert world.peers[1].answers == [7, 8]

    def test_request_without_response_defers_nothing(self) -> None:
        world = World(1)
        world.broker.silent = {0}
        world.send(0)
        assert not world.harness.timers.soon


class TestEnd:
    @staticmethod
    def deferred(world: World) -> Peer:
        """Return a peer whose response waits for the end of the turn."""
        world.send(0, 1)
        assert not world.peers[1].received
        return world.peers[1]

    def test_deferred_response_is_written_before_an_orderly_close(self) -> None:
        world = World(2)
        peer = self.deferred(world)
        peer.connection.finish()
        assert peer.answers == [1]
        assert peer.transport.closing

    def test_deferred_response_is_written_before_the_close_of_a_peer_that_hung_up(self) -> None:
        world = World(2)
        peer = self.deferred(world)
        peer.hang_up()
        assert peer.answers == [1]

    @pytest.mark.parametrize("is_aborted", [True, False])
    def test_response_of_a_broken_connection_is_dropped(self, is_aborted: bool) -> None:
        world = World(3)
        peer = self.deferred(world)
        world.send(2)
        if is_aborted:
            peer.connection.abort()
        else:
            peer.vanish()
        world.end_turn()
        assert world.answered == [0, 2]

    def test_failed_write_loses_no_response_of_another_connection(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = World(3)
        peer = self.deferred(world)
        world.send(2)

        def fail(_data: object) -> None:
            raise RuntimeError("the handle is closed")

        monkeypatch.setattr(peer.transport, "write", fail)
        monkeypatch.setattr(peer.transport, "writelines", fail)
        with pytest.raises(RuntimeError, match="handle"):
            world.end_turn()
        assert numbers_in(world.peers[2].received) == []
        world.end_turn()
        assert world.peers[2].answers == [2]

    def test_peer_that_reads_nothing_stops_no_other(self) -> None:
        world = World(3)
        world.broker.bodies = {1: bytes(20_000), 3: bytes(20_000), 5: bytes(20_000), 7: bytes(20_000)}
        world.peers[1].transport.is_stuck = True
        for number in (1, 3, 5, 7):
            world.send(0)
            world.peers[1].send(frame(number))
            world.end_turn()
        assert world.broker.begun == [0, 1, 0, 3, 0, 5, 0, 7]
        world.peers[1].send(frame(9))
        world.send(2)
        world.end_turn()
        assert 9 not in world.broker.begun
        assert world.peers[2].answers == [2]
        world.peers[1].transport.resume_peer()
        assert world.peers[1].answers == [1, 3, 5, 7, 9]
