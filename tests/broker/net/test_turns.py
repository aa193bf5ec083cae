"""Turns: which of the requests that arrive together are begun first."""

from broker.net.connection import REQUESTS_PER_TURN
from broker.net.request import Request
from broker.net.turns import CONNECTIONS_PER_TURN
from tests.broker.net.fakes import Broker, ConnectionHarness, Peer, frame

YIELDING = b"yields"


def yields(request: Request) -> bool:
    return bytes(request.body) == YIELDING


class World:
    """Connections of a server whose requests with the body YIELDING yield. Requests have the numbers of the peers."""

    def __init__(self, count: int) -> None:
        self.broker = Broker()
        self.harness = ConnectionHarness(self.broker, yields=yields)
        self.peers = [self.harness.connect() for _ in range(count)]

    def send(self, *numbers: int, body: bytes = b"") -> None:
        for number in numbers:
            self.peers[number].send(frame(number, body))

    def turn(self) -> list[int]:
        """Run a turn of the loop, and return the requests that it has begun."""
        before = len(self.broker.begun)
        self.harness.timers.run_soon()
        return self.broker.begun[before:]


class TestOrder:
    def test_yielding_request_is_begun_after_the_others_of_its_turn(self) -> None:
        world = World(3)
        world.send(0, body=YIELDING)
        world.send(1, 2)
        assert world.broker.begun == [1, 2]
        assert world.turn() == [0]
        assert world.peers[0].answers == [0]

    def test_yielding_requests_keep_the_order_of_their_arrival(self) -> None:
        world = World(3)
        world.send(2, 0, 1, body=YIELDING)
        assert world.turn() == [2, 0, 1]

    def test_loop_reads_again_after_a_few_turns(self) -> None:
        world = World(CONNECTIONS_PER_TURN + 2)
        world.send(*range(CONNECTIONS_PER_TURN + 1), body=YIELDING)
        assert world.turn() == list(range(CONNECTIONS_PER_TURN))
        world.send(CONNECTIONS_PER_TURN + 1)
        assert world.broker.begun[-1] == CONNECTIONS_PER_TURN + 1
        assert world.turn() == [CONNECTIONS_PER_TURN]
        assert not world.harness.timers.soon

    def test_turn_serves_as_many_connections_as_there_were_other_requests(self) -> None:
        count = 3 * CONNECTIONS_PER_TURN
        world = World(2 * count)
        world.send(*range(count), body=YIELDING)
        world.send(*range(count, 2 * count - 2))
        assert world.turn() == list(range(count - 2))
        assert world.turn() == [count - 2, count - 1]

    def test_requests_before_the_first_wait_do_not_lengthen_the_turn(self) -> None:
        count = 2 * CONNECTIONS_PER_TURN
        world = World(2 * count)
        world.send(*range(count))
        world.send(*range(count, 2 * count), body=YIELDING)
        assert world.turn() == list(range(count, count + CONNECTIONS_PER_TURN))


class TestOneConnection:
    def test_later_requests_wait_behind_the_one_that_yields(self) -> None:
        world = World(1)
        world.send(0, body=YIELDING)
        world.peers[0].send(frame(7))
        assert not world.broker.begun
        assert world.turn() == [0, 7]

    def test_turn_serves_all_requests_that_have_arrived(self) -> None:
        world = World(1)
        world.peers[0].send(frame(1, YIELDING) + frame(2, YIELDING))
        world.peers[0].send(frame(3, YIELDING))
        assert world.turn() == [1, 2, 3]
        assert len(world.peers[0].transport.sent) == 1

    def test_flood_takes_several_turns(self) -> None:
        world = World(1)
        peer: Peer = world.peers[0]
        peer.send(b"".join(frame(number, YIELDING) for number in range(REQUESTS_PER_TURN + 1)))
        seen: list[int] = []
        while world.harness.timers.soon:
            seen += world.turn()
        assert seen == list(range(len(seen)))
        assert len(seen) > REQUESTS_PER_TURN // 2

    def test_end_of_input_does_not_drop_the_request(self) -> None:
        world = World(1)
        world.send(0, body=YIELDING)
        world.peers[0].hang_up()
        assert world.turn() == [0]
        assert world.peers[0].answers == [0]
        assert world.peers[0].transport.closing

    def test_lost_connection_loses_its_turn_alone(self) -> None:
        world = World(2)
        world.send(0, 1, body=YIELDING)
        world.peers[0].vanish()
        assert world.turn() == [1]
        assert world.peers[0].transport.calls == []

    def test_drained_connection_begins_nothing(self) -> None:
        world = World(1)
        world.send(0, body=YIELDING)
        world.peers[0].connection.finish()
        assert world.turn() == []
        assert world.peers[0].transport.closing


class TestFaults:
    def test_failed_turn_does_not_stop_the_others(self) -> None:
        world = World(2)
        world.broker.failing[0] = ValueError("a bug")
        world.send(0, 1, body=YIELDING)
        assert world.turn() == [0, 1]
        assert world.peers[0].transport.closing
        assert world.peers[1].answers == [1]
