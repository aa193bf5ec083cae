"""Requests in flight and back-offs (`broker.quorum.request_manager`)."""

from broker.quorum.identity import Instant, SocketAddress
from broker.quorum.messages import ProbeRequest
from broker.quorum.request_manager import RequestManager
from protocol.ids import BrokerId

HOST = SocketAddress("host", 1)


def at(ms: float) -> Instant:
    return Instant(ms, 0)


def test_destination_is_busy_until_the_outcome() -> None:
    peers = RequestManager(2000, 20)
    sent = peers.send(BrokerId(2), HOST, ProbeRequest())
    assert (sent.to_id, sent.timeout_ms) == (2, 2000)
    assert not peers.is_ready(BrokerId(2), at(0))
    assert peers.is_ready(BrokerId(3), at(0))
    flight = peers.complete(sent.serial)
    assert flight is not None
    assert flight.to_id == 2
    assert peers.is_ready(BrokerId(2), at(0))


def test_outcome_counts_once() -> None:
    peers = RequestManager(2000, 20)
    sent = peers.send(BrokerId(2), HOST, ProbeRequest())
    peers.complete(sent.serial)
    assert peers.complete(sent.serial) is None


def test_backoff_grows_with_repeated_failures() -> None:
    peers = RequestManager(2000, 20)
    for pause in (20, 40, 80, 160, 160):
        peers.failed(BrokerId(2), at(0))
        assert not peers.is_ready(BrokerId(2), at(pause - 1))
        assert peers.next_retry(at(0)) == pause
        assert peers.is_ready(BrokerId(2), at(pause))
    peers.succeeded(BrokerId(2))
    peers.failed(BrokerId(2), at(0))
    assert peers.next_retry(at(0)) == 20


def test_reset_makes_every_destination_ready() -> None:
    peers = RequestManager(2000, 20)
    sent = peers.send(BrokerId(2), HOST, ProbeRequest())
    peers.failed(BrokerId(3), at(0))
    peers.reset()
    assert peers.is_ready(BrokerId(2), at(0))
    assert peers.is_ready(BrokerId(3), at(0))
    assert peers.complete(sent.serial) is None
    assert peers.next_retry(at(0)) is None


def test_address_change_drops_the_request_in_flight() -> None:
    peers = RequestManager(2000, 20)
    peers.failed(BrokerId(2), at(0))
    sent = peers.send(BrokerId(2), HOST, ProbeRequest())
    peers.on_address_changed(BrokerId(2))
    assert peers.is_failing(BrokerId(2))
    assert peers.is_ready(BrokerId(2), at(20))
    assert peers.complete(sent.serial) is None
