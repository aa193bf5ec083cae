"""Opening listening sockets, and the sentences of its errors."""

import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest

from broker.net.listening import Acceptor, ListenAddress, ListenError, host_and_port, listen, set_options


def test_port_0_picks_a_free_port() -> None:
    with listen(ListenAddress("PLAINTEXT", "127.0.0.1", 0)) as opened:
        assert host_and_port(opened.getsockname())[1] > 0


def test_empty_host_means_every_address() -> None:
    with listen(ListenAddress("PLAINTEXT", "", 0)) as opened:
        port = host_and_port(opened.getsockname())[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, address = opened.accept()
            accepted.close()
            assert host_and_port(address)[0] == "127.0.0.1"


def test_buffer_sizes_and_options_reach_accepted_sockets() -> None:
    with listen(ListenAddress("PLAINTEXT", "127.0.0.1", 0), receive_buffer_bytes=50_000) as opened:
        with socket.create_connection(opened.getsockname()):
            accepted, _ = opened.accept()
        with accepted:
            set_options(accepted, 40_000)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 40_000
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * 50_000


def test_host_name_is_resolved() -> None:
    with listen(ListenAddress("PLAINTEXT", "localhost", 0)) as opened:
        assert host_and_port(opened.getsockname())[0] in ("127.0.0.1", "::1")


def test_port_in_use_is_reported_in_one_sentence() -> None:
    with listen(ListenAddress("A", "127.0.0.1", 0)) as opened:
        port = opened.getsockname()[1]
        with pytest.raises(ListenError) as caught:
            listen(ListenAddress("B", "127.0.0.1", port))
    assert str(caught.value) == f"listener B cannot listen on 127.0.0.1:{port}: the port is in use by another process"


@pytest.mark.parametrize(
    ("host", "port", "reason"),
    [
        ("192.0.2.1", 0, "this machine does not have that address"),
        ("no-such-host.invalid", 0, "host 'no-such-host.invalid' is unknown"),
        ("127.0.0.1", 70_000, "ports are 0 to 65535"),
    ],
)
def test_invalid_listener_is_reported_in_one_sentence(host: str, port: int, reason: str) -> None:
    with pytest.raises(ListenError, match=reason):
        listen(ListenAddress("B", host, port))


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (("10.0.0.1", 9), ("10.0.0.1", 9)),
        (("::ffff:10.0.0.1", 9, 0, 0), ("10.0.0.1", 9)),
        (("::1", 9, 0, 0), ("::1", 9)),
    ],
)
def test_mapped_ipv4_addresses_are_shown_as_ipv4(address: tuple[Any, ...], shown: tuple[str, int]) -> None:
    assert host_and_port(address) == shown


class FailingSocket(socket.socket):
    """Fails with the given errors, one per accept, and has no further connection."""

    def __init__(self, *errors: int) -> None:
        super().__init__()
        self.errors = list(errors)

    def accept(self) -> Any:
        raise OSError(self.errors.pop(0), "injected") if self.errors else BlockingIOError


class Readers:
    """The part of a loop that an acceptor uses; records the calls."""

    def __init__(self) -> None:
        self.readers: dict[Any, Callable[[], None]] = {}
        self.later: list[Callable[[], None]] = []

    def add_reader(self, fd: Any, callback: Callable[[], None]) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: Any) -> None:
        del self.readers[fd]

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        self.later.append(callback)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_exhausted_descriptors_pause_accepting_for_a_while(number: int) -> None:
    loop = Readers()
    with FailingSocket(number) as listening:
        acceptor = Acceptor(listening, loop, may_accept=lambda: True, on_accepted=lambda *_: None)
        acceptor.start()
        loop.readers[listening]()
        assert loop.readers == {}
        (retry,) = loop.later
        retry()
        assert list(loop.readers) == [listening]


def test_connection_that_ended_in_the_queue_is_skipped() -> None:
    loop = Readers()
    with FailingSocket(errno.ECONNABORTED, errno.EPROTO) as listening:
        acceptor = Acceptor(listening, loop, may_accept=lambda: True, on_accepted=lambda *_: None)
        acceptor.start()
        loop.readers[listening]()
        assert listening.errors == []
        assert list(loop.readers) == [listening]
        acceptor.close()
        assert loop.readers == {}
