"""One connection: order, back-pressure and closing, on a transport in memory."""

import asyncio
import logging
import struct

import pytest

from broker.direct_future import direct_future
from broker.net.connection import (
    PARKED_BYTES_MAX,
    PARKED_REQUESTS_MAX,
    REQUESTS_PER_TURN,
    UNANSWERED_MAX,
    WRITE_HIGH_BYTES,
)
from broker.net.receiver import ARENA_BYTES
from broker.net.request import CloseConnection, EncodedResponse, Request
from protocol.errors import DecodeError
from tests.broker.net.fakes import FRAME_MAX, Broker, ConnectionHarness, answer_to, frame

KB = 1024


def frames(*numbers: int, body: bytes = b"") -> bytes:
    return b"".join(frame(number, body) for number in numbers)


class TestAnswersAtOnce:
    def test_request_is_answered_in_the_same_wake_up(self) -> None:
        peer = ConnectionHarness(Broker()).connect()
        peer.send(frame(1))
        assert peer.answers == [1]

    def test_pipelined_requests_are_answered_in_order_with_one_write(self) -> None:
        peer = ConnectionHarness(Broker()).connect()
        peer.send(frames(1, 2, 3))
        assert peer.answers == [1, 2, 3]
        assert len(peer.transport.sent) == 1

    def test_handler_sees_header_body_and_origin(self) -> None:
        broker = Broker()
        peer = ConnectionHarness(broker).connect()
        peer.send(frame(1, b"body"))
        request = broker.requests[1]
        assert request.header == (3, 1, 1, "test")
        assert bytes(request.body) == b"body"
        assert request.connection is peer.connection.info
        assert request.received_ms == 1_700_000_000_000
        assert request.size == len(frame(1, b"body")) - 4

    def test_request_without_response_leaves_no_gap(self) -> None:
        broker = Broker()
        broker.silent = {2}
        peer = ConnectionHarness(broker).connect()
        peer.send(frames(1, 2, 3))
        assert broker.begun == [1, 2, 3]
        assert peer.answers == [1, 3]

    def test_large_response_reaches_the_transport_without_a_copy(self) -> None:
        body = memoryview(bytes(100 * KB))
        peer = ConnectionHarness(lambda request: [b"head", body]).connect()
        peer.send(frame(1))
        assert peer.transport.sent[1] is body

    def test_bytes_are_counted(self) -> None:
        peer = ConnectionHarness(Broker()).connect()
        peer.send(frames(1, 2))
        stats = peer.connection.stats
        assert (stats.requests, stats.bytes_in, stats.bytes_out) == (2, len(frames(1, 2)), len(peer.received))


def direct() -> "asyncio.Future[EncodedResponse]":
    return direct_future(asyncio.get_running_loop())


class TestDirectAnswers:
    async def test_response_leaves_inside_the_work_that_sets_it(self) -> None:
        broker = Broker(direct)
        broker.later = {1}
        peer = ConnectionHarness(broker).connect()
        peer.send(frame(1))
        broker.futures[1].set_result(broker.answer(1))
        assert peer.answers == [1]

    async def test_next_request_is_begun_in_the_next_turn(self) -> None:
        broker = Broker(direct)
        broker.later = {1}
        harness = ConnectionHarness(broker)
        peer = harness.connect()
        peer.send(frames(1, 2))
        broker.futures[1].set_result(broker.answer(1))
        assert (broker.begun, peer.answers) == ([1], [1])
        harness.timers.run_soon()
        assert (broker.begun, peer.answers) == ([1, 2], [1, 2])

    async def test_connection_that_waits_for_room_goes_on_in_the_next_turn(self) -> None:
        broker = Broker(direct)
        broker.later = {1, 3}
        harness = ConnectionHarness(broker, parked_max=1)
        first, other = harness.connect(), harness.connect()
        first.send(frame(1))
        other.send(frame(3) + frame(4))
        assert harness.backlog.is_full()
        assert other.send(frame(5)) == 0
        broker.futures[3].set_result(broker.answer(3))
        assert broker.begun == [1, 3]
        harness.timers.run_soon()
        assert broker.begun == [1, 3, 4]

    async def test_responses_keep_the_order_of_the_requests(self) -> None:
        broker = Broker(direct)
        broker.applied = {1, 2}
        harness = ConnectionHarness(broker)
        peer = harness.connect()
        peer.send(frames(1, 2))
        harness.timers.run_soon()
        broker.futures[2].set_result(broker.answer(2))
        assert peer.answers == []
        broker.futures[1].set_result(broker.answer(1))
        assert peer.answers == [1, 2]

    async def test_error_closes_the_connection_in_the_next_turn(self) -> None:
        broker = Broker(direct)
        broker.later = {1}
        peer = ConnectionHarness(broker).connect()
        peer.send(frame(1))
        broker.futures[1].set_exception(CloseConnection("a test"))
        assert not peer.transport.closing
        await asyncio.sleep(0)
        assert peer.transport.closing

    async def test_lost_connection_cancels_the_handler(self) -> None:
        broker = Broker(direct)
        broker.later = {1}
        peer = ConnectionHarness(broker).connect()
        peer.send(frame(1))
        peer.vanish()
        assert broker.futures[1].cancelled()
        await asyncio.sleep(0)
        assert peer.answers == []


class TestAnswersLater:
    async def test_waiting_request_holds_later_requests(self) -> None:
        broker = Broker()
        broker.later = {1}
        peer = ConnectionHarness(broker).connect()
        peer.send(frames(1, 2))
        peer.send(frame(3))
        assert broker.begun == [1]
        await broker.finish(1)
        assert broker.begun == [1, 2, 3]
        assert peer.answers == [1, 2, 3]

    async def test_requests_with_applied_effects_overlap_and_are_answered_in_order(self) -> None:
        broker = Broker()
        broker.applied = {1, 2}
        peer = ConnectionHarness(broker).connect()
        peer.send(frames(1, 2, 3))
        assert broker.begun == [1, 2, 3]
        await broker.finish(2)
        assert peer.answers == []
        await broker.finish(1)
        assert peer.answers == [1, 2, 3]

    async def test_effects_applied_later_begin_no_request_inside_the_handler(self) -> None:
        broker = Broker()
        broker.later = {1}
        house = ConnectionHarness(broker)
        peer = house.connect()
        peer.send(frames(1, 2))
        broker.requests[1].effects_applied()
        assert broker.begun == [1]
        house.timers.run_soon()
        assert broker.begun == [1, 2]
        await broker.finish(1)
        assert peer.answers == [1, 2]

    async def test_request_behind_an_applied_one_can_hold_again(self) -> None:
        broker = Broker()
        broker.applied, broker.later = {1}, {2}
        peer = ConnectionHarness(broker).connect()
        peer.send(frames(1, 2, 3))
        assert broker.begun == [1, 2]
        await broker.finish(1)
        assert broker.begun == [1, 2]
        await broker.finish(2)
        assert peer.answers == [1, 2, 3]

    async def test_coroutine_is_accepted_as_awaitable(self) -> None:
        gate = asyncio.Event()

        async def wait(request: Request) -> EncodedResponse:
            await gate.wait()
            return answer_to(request)

        peer = ConnectionHarness(wait).connect()
        peer.send(frames(1, 2))
        gate.set()
        for _ in range(8):
            await asyncio.sleep(0)
        assert peer.answers == [1, 2]

    async def test_outstanding_responses_are_limited(self) -> None:
        broker = Broker()
        broker.applied = set(range(UNANSWERED_MAX + 5))
        house = ConnectionHarness(broker)
        peer = house.connect()
        peer.send(frames(*range(UNANSWERED_MAX + 5)))
        house.timers.run_soon()
        house.timers.run_soon()
        assert len(broker.begun) == UNANSWERED_MAX
        await broker.finish(0)
        assert len(broker.begun) == UNANSWERED_MAX + 1

    async def test_withheld_responses_are_limited_in_size(self) -> None:
        broker = Broker()
        broker.applied = {1}
        broker.bodies = {2: bytes(WRITE_HIGH_BYTES)}
        peer = ConnectionHarness(broker).connect()
        peer.send(frames(1, 2, 3))
        assert broker.begun == [1, 2]
        await broker.finish(1)
        assert peer.answers == [1, 2, 3]

    def test_flood_of_requests_is_handled_in_turns(self) -> None:
        broker = Broker()
        house = ConnectionHarness(broker)
        peer = house.connect()
        peer.send(frames(*range(2 * REQUESTS_PER_TURN + 1)))
        assert len(broker.begun) == REQUESTS_PER_TURN
        assert not peer.transport.is_reading()
        house.timers.run_soon()
        assert len(broker.begun) == 2 * REQUESTS_PER_TURN
        house.timers.run_soon()
        assert peer.answers == list(range(2 * REQUESTS_PER_TURN + 1))
        assert peer.transport.is_reading()
        assert house.timers.soon == []

    async def test_waiting_connection_does_not_hold_other_connections(self) -> None:
        broker = Broker()
        broker.later = {1}
        house = ConnectionHarness(broker)
        waiting, other = house.connect(), house.connect()
        waiting.send(frame(1))
        other.send(frame(2))
        assert other.answers == [2]
        waiting.vanish()


class TestPressureOnThePeer:
    async def test_reading_stops_at_the_parked_limit_and_resumes_at_half(self) -> None:
        broker = Broker()
        broker.later = {0, PARKED_REQUESTS_MAX // 2}
        peer = ConnectionHarness(broker).connect()
        for number in range(PARKED_REQUESTS_MAX + 1):
            assert peer.transport.is_reading()
            peer.send(frame(number))
        assert not peer.transport.is_reading()
        await broker.finish(0)
        assert len(broker.begun) == PARKED_REQUESTS_MAX // 2 + 1
        assert not peer.transport.is_reading()
        await broker.finish(PARKED_REQUESTS_MAX // 2)
        assert peer.transport.is_reading()
        assert peer.answers == list(range(PARKED_REQUESTS_MAX + 1))

    async def test_reading_stops_when_parked_requests_are_large(self) -> None:
        broker = Broker()
        broker.later = {1}
        peer = ConnectionHarness(broker).connect()
        peer.send(frame(1) + frame(2, bytes(PARKED_BYTES_MAX)))
        assert not peer.transport.is_reading()
        await broker.finish(1)
        assert peer.transport.is_reading()
        assert peer.answers == [1, 2]

    async def test_waiting_request_alone_does_not_stop_reading(self) -> None:
        broker = Broker()
        broker.later = {1}
        peer = ConnectionHarness(broker).connect()
        peer.send(frame(1))
        assert peer.transport.is_reading()
        peer.vanish()

    async def test_backlog_counts_requests_that_outlive_a_wake_up(self) -> None:
        broker = Broker()
        broker.later = {1}
        house = ConnectionHarness(broker)
        peer = house.connect()
        peer.send(frame(7))
        assert (house.backlog.parked, house.backlog.bytes) == (0, 0)
        peer.send(frames(1, 2))
        assert (house.backlog.parked, house.backlog.bytes) == (1, 2 * len(frame(1)) - 8)
        await broker.finish(1)
        assert (house.backlog.parked, house.backlog.bytes) == (0, 0)

    async def test_full_backlog_stops_only_connections_that_would_park_more(self) -> None:
        broker = Broker()
        broker.later = {1, 11}
        house = ConnectionHarness(broker, parked_max=2)
        first, second, third = house.connect(), house.connect(), house.connect()
        first.send(frames(1, 2, 3))
        assert not first.transport.is_reading()
        second.send(frame(11))
        assert second.transport.is_reading()
        second.send(frame(12))
        assert not second.transport.is_reading()
        third.send(frame(20))
        assert third.answers == [20]
        await broker.finish(1)
        assert first.transport.is_reading()
        assert second.transport.is_reading()
        second.vanish()

    async def test_large_frame_waits_in_its_socket_without_request_memory(self) -> None:
        broker = Broker()
        broker.later = {1}
        house = ConnectionHarness(broker, bytes_max=50 * KB)
        first, second = house.connect(), house.connect()
        first.send(frame(1, bytes(60 * KB)))
        assert broker.begun == [1]
        large = frame(2, bytes(100 * KB))
        taken = second.send(large)
        assert taken <= ARENA_BYTES
        assert not second.transport.is_reading()
        await broker.finish(1)
        assert second.transport.is_reading()
        second.send(large[taken:])
        assert second.answers == [2]
        assert house.backlog.bytes == 0

    async def test_memory_of_a_lost_connection_is_given_to_waiters(self) -> None:
        broker = Broker()
        house = ConnectionHarness(broker, bytes_max=50 * KB)
        first, second = house.connect(), house.connect()
        first.send(frame(1, bytes(500 * KB))[: 100 * KB])
        second.send(frame(2, bytes(100 * KB)))
        assert not second.transport.is_reading()
        first.vanish()
        assert second.transport.is_reading()

    def test_many_waiters_are_admitted_without_recursion(self) -> None:
        house = ConnectionHarness(Broker(), bytes_max=50 * KB)
        first = house.connect()
        first.send(frame(1, bytes(500 * KB))[: 100 * KB])
        others = [house.connect(port) for port in range(2000)]
        for other in others:
            other.send(frame(2, bytes(20 * KB))[:-1])
        first.vanish()
        for other in others:
            if other.transport.is_reading():
                other.send(b"\0")
        assert [other.answers for other in others] == [[2]] * len(others)


class TestPressureFromThePeer:
    def test_peer_that_does_not_read_gets_no_further_request_begun(self) -> None:
        broker = Broker()
        broker.bodies = {1: bytes(WRITE_HIGH_BYTES)}
        peer = ConnectionHarness(broker).connect()
        peer.transport.is_stuck = True
        peer.send(frames(1, 2, 3))
        assert broker.begun == [1]
        peer.transport.resume_peer()
        assert peer.answers == [1, 2, 3]

    def test_many_small_responses_count_as_unsent(self) -> None:
        broker = Broker()
        broker.bodies = dict.fromkeys(range(50), bytes(4 * KB))
        peer = ConnectionHarness(broker).connect()
        peer.transport.is_stuck = True
        peer.send(frames(*range(50)))
        assert peer.transport.unsent_bytes < 2 * WRITE_HIGH_BYTES
        assert len(broker.begun) < 50
        peer.transport.resume_peer()
        assert peer.answers == list(range(50))


class TestMuting:
    def test_response_leaves_at_once_and_the_next_request_is_muted(self) -> None:
        broker = Broker()
        broker.mutes = {1: 250.0}
        house = ConnectionHarness(broker)
        peer = house.connect()
        peer.send(frames(1, 2))
        assert peer.answers == [1]
        ((delay, unmute),) = house.timers.later
        assert delay == 0.25
        unmute()
        assert peer.answers == [1, 2]
        assert len(house.timers.later) == 1

    async def test_longer_of_two_mutes_counts(self) -> None:
        broker = Broker()
        broker.applied = {1, 2}
        house = ConnectionHarness(broker)
        peer = house.connect()
        peer.send(frames(1, 2))
        for number in (1, 2):
            peer.connection.info.mute_ms = number * 100.0
            await broker.finish(number)
        (_, first), (_, second) = house.timers.later
        first()
        assert peer.send(frame(3)) == 0
        second()
        peer.send(frame(3))
        assert broker.begun == [1, 2, 3]

    async def test_request_that_waits_for_its_response_mutes_the_next_one_at_once(self) -> None:
        broker = Broker()
        broker.later = broker.applied = {1}
        broker.mutes = {1: 250.0}
        house = ConnectionHarness(broker)
        peer = house.connect()
        peer.send(frames(1, 2))
        assert broker.begun == [1]
        ((_, unmute),) = house.timers.later
        await broker.finish(1)
        assert (peer.answers, broker.begun) == ([1], [1])
        unmute()
        assert (peer.answers, len(house.timers.later)) == ([1, 2], 1)

    def test_muted_client_takes_no_place_of_others(self) -> None:
        broker = Broker()
        broker.mutes = {1: 250.0}
        house = ConnectionHarness(broker)
        peer = house.connect()
        peer.send(frames(1, 2, 3))
        assert (broker.begun, house.backlog.parked) == ([1], 0)
        assert peer.send(frame(4)) == 0
        ((_, unmute),) = house.timers.later
        unmute()
        peer.send(frame(4))
        assert (peer.answers, house.backlog.parked, house.backlog.bytes) == ([1, 2, 3, 4], 0, 0)


class TestBadInput:
    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"GET / HTTP/1.1\r\n\r\n", "looks like an HTTP request"),
            (b"\x16\x03\x01\x02\x00\x01", "looks like a TLS handshake on a PLAINTEXT listener"),
            (struct.pack(">i", -5), "a request of negative size -5"),
            (struct.pack(">i", 2**31 - 1), "more than socket.request.max.bytes=1000000"),
            (struct.pack(">i", 3) + b"abc", "request header"),
        ],
    )
    def test_malformed_input_closes_the_connection_with_one_log_line(
        self, data: bytes, reason: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker = Broker()
        peer = ConnectionHarness(broker).connect()
        peer.send(frame(1) + data + frame(2))
        assert broker.begun == [1]
        assert peer.answers == [1]
        assert peer.transport.is_closing()
        (record,) = caplog.records
        assert record.getMessage() == "closed a connection"
        assert reason in str(record.__dict__["fields"]["reason"])

    @pytest.mark.parametrize("error", [CloseConnection("unsupported"), DecodeError("malformed")])
    async def test_requests_before_a_malformed_one_are_answered_and_later_ones_dropped(
        self, error: Exception, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker = Broker()
        broker.applied = {1}
        broker.failing = {2: error}
        peer = ConnectionHarness(broker).connect()
        peer.send(frames(1, 2, 3))
        assert not peer.transport.is_closing()
        assert not peer.transport.is_reading()
        await broker.finish(1)
        assert peer.answers == [1]
        assert peer.transport.is_closing()
        assert broker.begun == [1, 2]
        assert len(caplog.records) == 1

    async def test_handler_that_fails_late_ends_the_connection_in_request_order(self) -> None:
        broker = Broker()
        broker.applied = {1, 2, 3}
        peer = ConnectionHarness(broker).connect()
        peer.send(frames(1, 2, 3))
        broker.futures[2].set_exception(CloseConnection("acks=0 and refused"))
        await asyncio.sleep(0)
        assert broker.futures[3].cancelled()
        await broker.finish(1)
        assert peer.answers == [1]
        assert peer.transport.is_closing()

    def test_handler_bug_is_logged_and_ends_only_its_connection(self, caplog: pytest.LogCaptureFixture) -> None:
        broker = Broker()
        broker.failing = {1: ZeroDivisionError("bug")}
        house = ConnectionHarness(broker)
        peer, other = house.connect(), house.connect()
        peer.send(frame(1))
        other.send(frame(2))
        assert peer.transport.is_closing()
        assert other.answers == [2]
        (record,) = caplog.records
        assert record.levelno == logging.ERROR
        assert record.exc_info is not None

    def test_flood_of_malformed_connections_logs_few_lines(self, caplog: pytest.LogCaptureFixture) -> None:
        house = ConnectionHarness(Broker())
        for port in range(100):
            house.connect(port).send(b"GET / HTTP/1.1\r\n")
        assert len(caplog.records) == 10
        house.clock.advance_ms(1000)
        house.connect().send(b"GET / HTTP/1.1\r\n")
        assert caplog.records[-1].__dict__["fields"]["suppressed"] == 90

    async def test_parked_malformed_request_stops_reading(self, caplog: pytest.LogCaptureFixture) -> None:
        broker = Broker()
        broker.later = {1}
        peer = ConnectionHarness(broker).connect()
        peer.send(frame(1) + b"GET / HTTP/1.1\r\n")
        assert not peer.transport.is_reading()
        peer.connection.buffer_updated(4)
        peer.hang_up()
        await broker.finish(1)
        assert peer.answers == [1]
        assert peer.transport.is_closing()
        assert len(caplog.records) == 1

    def test_malformed_request_stops_reading(self) -> None:
        broker = Broker()
        peer = ConnectionHarness(broker).connect()
        peer.send(b"GET / HTTP/1.1\r\n")
        assert not peer.transport.is_reading()
        peer.connection.buffer_updated(4)
        assert broker.begun == []


class TestEndings:
    def test_half_close_closes_an_idle_connection(self) -> None:
        peer = ConnectionHarness(Broker()).connect()
        peer.send(frame(1))
        peer.hang_up()
        assert peer.transport.is_closing()

    async def test_requests_before_a_half_close_are_handled(self) -> None:
        broker = Broker()
        broker.later = {1}
        broker.silent = {2}
        peer = ConnectionHarness(broker).connect()
        peer.send(frames(1, 2))
        peer.hang_up()
        assert not peer.transport.is_closing()
        await broker.finish(1)
        assert broker.begun == [1, 2]
        assert peer.transport.is_closing()
        assert "resume" not in peer.transport.calls

    async def test_half_close_ends_waiting_requests_and_later_ones(self) -> None:
        broker = Broker()
        broker.later = broker.patient = {1, 3}
        peer = ConnectionHarness(broker).connect()
        peer.send(frames(1, 2, 3))
        assert broker.begun == [1]
        peer.hang_up()
        for _ in range(3):
            await asyncio.sleep(0)
        assert peer.answers == [1, 2, 3]
        assert peer.transport.is_closing()

    async def test_answered_request_is_not_notified_of_a_half_close(self) -> None:
        broker = Broker()
        broker.later, broker.patient = {1, 2}, {1}
        peer = ConnectionHarness(broker).connect()
        peer.send(frames(1, 2))
        await broker.finish(1)
        peer.hang_up()
        assert not peer.transport.is_closing()
        await broker.finish(2)
        assert peer.answers == [1, 2]

    async def test_half_closed_connection_does_not_resume_reading(self) -> None:
        broker = Broker()
        broker.later = {1, 11}
        house = ConnectionHarness(broker, parked_max=2)
        first, second = house.connect(), house.connect()
        second.send(frame(11))
        first.send(frames(1, 2, 3))
        second.hang_up()
        await broker.finish(1)
        assert "resume" in first.transport.calls
        assert "resume" not in second.transport.calls
        await broker.finish(11)
        assert second.transport.is_closing()

    async def test_lost_connection_cancels_its_handlers_and_frees_everything(self) -> None:
        broker = Broker()
        broker.applied, broker.later = {1}, {2}
        house = ConnectionHarness(broker)
        peer = house.connect()
        peer.send(frames(1, 2, 3))
        peer.vanish()
        await asyncio.sleep(0)
        assert broker.futures[1].cancelled()
        assert broker.futures[2].cancelled()
        assert (house.backlog.parked, house.backlog.bytes, len(house.idle)) == (0, 0, 0)
        assert house.closed == [peer.connection]
        assert peer.answers == []

    async def test_handler_failure_after_a_lost_connection_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        async def fail(request: Request) -> EncodedResponse:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                raise ZeroDivisionError("in the clean-up") from None
            return None

        peer = ConnectionHarness(fail).connect()
        peer.send(frame(1))
        await asyncio.sleep(0)
        peer.vanish()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        (record,) = caplog.records
        assert "after its connection was closed" in record.getMessage()

    async def test_finish_answers_begun_requests_and_begins_no_more(self) -> None:
        broker = Broker()
        broker.later = {1}
        peer = ConnectionHarness(broker).connect()
        peer.send(frames(1, 2))
        peer.connection.finish()
        assert not peer.transport.is_closing()
        await broker.finish(1)
        assert peer.answers == [1]
        assert broker.begun == [1]
        assert peer.transport.is_closing()

    def test_finish_closes_an_idle_connection_at_once(self) -> None:
        peer = ConnectionHarness(Broker()).connect()
        peer.connection.finish()
        assert peer.transport.is_closing()


class TestIdle:
    def test_idle_connection_expires_and_an_active_one_does_not(self) -> None:
        house = ConnectionHarness(Broker(), idle_ms=1000)
        silent, active = house.connect(), house.connect()
        house.clock.advance_ms(900)
        active.send(frame(1))
        house.clock.advance_ms(200)
        assert house.idle.expired(house.clock.monotonic_ms()) == [silent.connection]

    def test_single_bytes_of_a_frame_are_no_activity(self) -> None:
        house = ConnectionHarness(Broker(), idle_ms=1000)
        slow = house.connect()
        for byte in frame(1)[:-1]:
            slow.send(bytes([byte]))
            house.clock.advance_ms(100)
        assert house.idle.expired(house.clock.monotonic_ms()) == [slow.connection]

    def test_peer_that_stops_reading_is_closed_without_draining(self) -> None:
        broker = Broker()
        broker.bodies = {1: bytes(100 * KB)}
        house = ConnectionHarness(broker, idle_ms=1000)
        peer = house.connect()
        peer.transport.is_stuck = True
        peer.send(frame(1))
        house.clock.advance_ms(1001)
        assert not peer.connection.close_if_stuck(house.clock.monotonic_ms())
        assert house.idle.expired(house.clock.monotonic_ms()) == []
        house.clock.advance_ms(1001)
        assert house.idle.expired(house.clock.monotonic_ms()) == [peer.connection]
        assert peer.connection.close_if_stuck(house.clock.monotonic_ms())
        assert peer.transport.aborted

    def test_slowly_reading_peer_is_kept(self) -> None:
        broker = Broker()
        broker.bodies = {1: bytes(100 * KB)}
        house = ConnectionHarness(broker, idle_ms=1000)
        peer = house.connect()
        peer.transport.is_stuck = True
        peer.send(frame(1))
        for _ in range(5):
            house.clock.advance_ms(1001)
            assert not peer.connection.close_if_stuck(house.clock.monotonic_ms())
            peer.transport.unsent_bytes -= 1000

    def test_peer_that_resumes_reading_is_active(self) -> None:
        broker = Broker()
        broker.bodies = {1: bytes(100 * KB)}
        house = ConnectionHarness(broker, idle_ms=1000)
        peer = house.connect()
        peer.transport.is_stuck = True
        peer.send(frame(1))
        house.clock.advance_ms(900)
        peer.transport.resume_peer()
        house.clock.advance_ms(900)
        assert house.idle.expired(house.clock.monotonic_ms()) == []

    def test_frame_of_the_largest_size_is_accepted(self) -> None:
        peer = ConnectionHarness(Broker()).connect()
        peer.send(frame(1, bytes(FRAME_MAX - 14)))
        assert peer.answers == [1]
