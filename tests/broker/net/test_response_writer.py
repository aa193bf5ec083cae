"""Writes from chunks."""

from broker.net.response_writer import JOIN_MAX_BYTES, SMALL_CHUNK_BYTES, ResponseWriter, join_small
from broker.net.stats import ListenerStats
from protocol.primitives import Buffer
from tests.broker.net.fakes import Broker, ConnectionHarness, FakeTransport


def outbox() -> tuple[ResponseWriter, FakeTransport, ListenerStats]:
    transport = FakeTransport()
    transport.protocol = ConnectionHarness(Broker()).connect().connection
    stats = ListenerStats()
    return ResponseWriter(transport, stats), transport, stats


def test_empty_writer_writes_nothing() -> None:
    box, transport, _ = outbox()
    box.flush()
    box.add([])
    box.flush()
    assert transport.sent == []


def test_small_chunks_become_one_write() -> None:
    box, transport, stats = outbox()
    box.add([b"a", memoryview(b"b")])
    box.add([bytearray(b"c")])
    assert transport.sent == []
    box.flush()
    assert transport.sent == [b"abc"]
    assert stats.bytes_out == 3


def test_many_bytes_are_written_before_flush() -> None:
    box, transport, stats = outbox()
    box.add([bytes(JOIN_MAX_BYTES)])
    assert transport.sent == []
    box.add([b"x"])
    assert stats.bytes_out == JOIN_MAX_BYTES + 1
    assert len(transport.sent) == 2


def test_large_chunks_stay_the_same_objects_among_joined_small_ones() -> None:
    large = memoryview(bytes(SMALL_CHUNK_BYTES))
    chunks: list[Buffer] = [b"a", b"b", large, b"c", large, large, b"d", b"e"]
    joined = join_small(chunks)
    assert joined == [b"ab", large, b"c", large, large, b"de"]
    assert joined[1] is large
