"""The counters of a server: backlog, idle connections, connections per address."""

from broker.net.admission import ConnectionCounts
from broker.net.backlog import RequestBacklog
from broker.net.idle import IdleOrder


class Waiter:
    """Adds `size` bytes once admitted."""

    def __init__(self, backlog: RequestBacklog, size: int = 0) -> None:
        self._backlog = backlog
        self._size = size
        self.calls = 0

    def on_room(self) -> None:
        self.calls += 1
        self._backlog.adjust(0, self._size)


class TestBacklog:
    def test_requests_alone_count_without_a_limit_on_bytes(self) -> None:
        backlog = RequestBacklog(parked_max=2, bytes_max=-1)
        backlog.adjust(1, 10**12)
        assert not backlog.is_full()
        assert backlog.bytes_left == -1
        backlog.adjust(1, 0)
        assert backlog.is_full()

    def test_last_admitted_frame_may_exceed_the_limit(self) -> None:
        backlog = RequestBacklog(parked_max=10, bytes_max=100)
        backlog.adjust(0, 99)
        assert not backlog.is_full()
        backlog.adjust(0, 500)
        assert backlog.is_full()
        assert backlog.bytes_left == 0

    def test_waiters_are_admitted_in_order_while_there_is_room(self) -> None:
        backlog = RequestBacklog(parked_max=10, bytes_max=100)
        backlog.adjust(0, 100)
        waiters = [Waiter(backlog, 60) for _ in range(3)]
        for waiter in waiters:
            backlog.wait(waiter)
        backlog.adjust(0, -100)
        assert [waiter.calls for waiter in waiters] == [1, 1, 0]
        backlog.adjust(0, -60)
        assert [waiter.calls for waiter in waiters] == [1, 1, 1]

    def test_any_number_of_waiters_is_admitted_without_recursion(self) -> None:
        backlog = RequestBacklog(parked_max=1, bytes_max=100_000)
        backlog.adjust(1, 0)
        waiters = [Waiter(backlog, 1) for _ in range(5000)]
        for waiter in waiters:
            backlog.wait(waiter)
        backlog.adjust(-1, 0)
        assert all(waiter.calls == 1 for waiter in waiters)

    def test_forgotten_waiter_is_not_called(self) -> None:
        backlog = RequestBacklog(parked_max=1, bytes_max=-1)
        backlog.adjust(1, 0)
        waiter = Waiter(backlog)
        backlog.wait(waiter)
        backlog.forget(waiter)
        backlog.adjust(-1, 0)
        assert waiter.calls == 0


class TestIdleOrder:
    def test_longest_idle_connections_come_first(self) -> None:
        order: IdleOrder[str] = IdleOrder(100)
        for now, name in enumerate("abc"):
            order.touch(name, now)
        order.touch("a", 10)
        assert list(order) == ["b", "c", "a"]

    def test_connection_idle_for_exactly_the_limit_is_kept(self) -> None:
        order: IdleOrder[str] = IdleOrder(100)
        order.touch("a", 0)
        order.touch("b", 1)
        assert order.expired(100) == []
        assert order.expired(101) == ["a"]
        order.remove("a")
        assert order.expired(102) == ["b"]

    def test_negative_limit_never_expires(self) -> None:
        order: IdleOrder[str] = IdleOrder(-1)
        order.touch("a", 0)
        assert order.expired(1e12) == []


class TestConnectionCounts:
    def test_overrides_replace_the_common_limit(self) -> None:
        counts = ConnectionCounts(100, 1, {"10.0.0.1": 2, "10.0.0.3": 0})
        for host in ("10.0.0.1", "10.0.0.2"):
            assert counts.admits(host)
            counts.opened(host)
        assert counts.admits("10.0.0.1")
        assert not counts.admits("10.0.0.2")
        assert not counts.admits("10.0.0.3")

    def test_closed_connection_makes_room(self) -> None:
        counts = ConnectionCounts(1, 1, {})
        counts.opened("10.0.0.1")
        assert counts.is_full()
        counts.closed("10.0.0.1")
        assert not counts.is_full()
        assert counts.admits("10.0.0.1")
