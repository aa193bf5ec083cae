"""Listening sockets: addresses, errors as sentences for the operator, and accepting.

Accepting is done here and not by the event loop's own servers: these can neither leave surplus connections in the
kernel's queue, as Kafka's acceptor does, nor check an address before they build a transport.
"""

import errno
import os
import socket
from collections.abc import Callable, Mapping
from typing import Protocol, cast

from broker.logs import EventLog
from protocol.lazy_dataclass import lazy_dataclass

ACCEPTS_PER_WAKE_UP = 64  # a storm of connections must not starve those that are open
RETRY_AFTER_S = 1.0  # when the process or the system is out of descriptors or memory
PORT_MAX = 65_535
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

log = EventLog("broker.net")


class ListenError(Exception):
    """A listener cannot be opened; the text is one sentence for the operator, without final stop."""


@lazy_dataclass(frozen=True, slots=True)
class ListenAddress:
    """A named endpoint of `listeners`; an empty host means every address of the machine, port 0 any free port."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


def listen(listener: ListenAddress, *, backlog: int = 50, receive_buffer_bytes: int = -1) -> socket.socket:
    """Open a listening socket. Connections queue up in the kernel from now on, up to `backlog`.

    Raises ListenError.
    """
    place = f"{listener.host or '*'}:{listener.port}"
    if not 0 <= listener.port <= PORT_MAX:  # the resolver would take it modulo 65536
        raise ListenError(f"listener {listener.name} cannot listen on {place}: ports are 0 to {PORT_MAX}")
    try:
        family, address = _resolve(listener.host, listener.port)
        return _bind(family, address, backlog, receive_buffer_bytes)
    except socket.gaierror as error:
        raise ListenError(f"listener {listener.name}: host {listener.host!r} is unknown ({error.strerror})") from error
    except OSError as error:
        raise ListenError(f"listener {listener.name} cannot listen on {place}: {_reason(error)}") from error


def addresses_of(host: str) -> set[str]:
    """Return the addresses of a host name; an address is its own. Raises ListenError."""
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except socket.gaierror as error:
        raise ListenError(f"host {host!r} is unknown ({error.strerror})") from error


def by_address(counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts by host name or address as counts by address. Raises ListenError."""
    return {address: count for host, count in counts.items() for address in addresses_of(host)}


def host_and_port(address: tuple[str | int, ...]) -> tuple[str, int]:
    """Return host and port of a socket address; an IPv4 address mapped to IPv6 is returned as IPv4."""
    host = str(address[0])
    return host.removeprefix("::ffff:") if "." in host else host, int(address[1])


def set_options(accepted: socket.socket, send_buffer_bytes: int = -1) -> None:
    """Set the options of an accepted socket."""
    # Responses are small, and often the next is ready before the last is acknowledged: Nagle's algorithm would hold it
    # for 40 ms. asyncio sets this only where a socket names its protocol, which accepted ones do not.
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if send_buffer_bytes > 0:
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)


def _resolve(host: str, port: int) -> tuple[int, tuple[str | int, ...]]:
    if not host:
        any_address = ("::", port, 0, 0) if socket.has_dualstack_ipv6() else ("0.0.0.0", port)
        return (socket.AF_INET6 if len(any_address) == 4 else socket.AF_INET), any_address
    # A host given as text is looked up in tables of international names, which take milliseconds to load.
    name = host.encode() if host.isascii() else host
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # Java does the same: one address per listener, the first IPv4 address of several.
    family, _, _, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    return family, cast("tuple[str | int, ...]", address)


def _bind(family: int, address: tuple[str | int, ...], backlog: int, receive_buffer_bytes: int) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
        if receive_buffer_bytes > 0:  # accepted sockets inherit it; set after listening, the window stays small
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        listening.bind(address)
        listening.listen(backlog)
    except BaseException:
        listening.close()
        raise
    return listening


def _reason(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "the port is in use by another process"
        case errno.EADDRNOTAVAIL:
            return "this machine does not have that address"
        case errno.EACCES:
            return "this user may not use that port"
        case int(number):
            return os.strerror(number)
        case _:
            return str(error)


class SocketReaders(Protocol):
    """The part of an event loop that accepting needs."""

    def add_reader(self, fd: socket.socket, callback: Callable[[], None], /) -> object:
        """Call `callback` whenever `fd` is readable."""
        ...

    def remove_reader(self, fd: socket.socket, /) -> object:
        """Stop calling back."""
        ...

    def call_later(self, delay: float, callback: Callable[[], None], /) -> object:
        """Call `callback` after `delay` seconds."""
        ...


class Acceptor:
    """Accepts on one listening socket: `start`, `pause`, `start` again, `close`.

    `may_accept` is called before each connection is taken from the kernel's queue. If it returns False, the acceptor
    pauses until it is started again. `on_accepted` gets the non-blocking socket and its peer's address.
    """

    def __init__(
        self,
        listening: socket.socket,
        loop: SocketReaders,
        *,
        may_accept: Callable[[], bool],
        on_accepted: Callable[[socket.socket, tuple[str, int]], None],
    ) -> None:
        self._socket = listening
        self._loop = loop
        self._may_accept = may_accept
        self._on_accepted = on_accepted
        self._is_accepting = False
        self._is_throttled = False

    def start(self) -> None:
        """Begin or continue accepting. Does nothing while accepting or throttled, or once closed."""
        if not self._is_accepting and not self._is_throttled and self._socket.fileno() >= 0:
            self._is_accepting = True
            self._loop.add_reader(self._socket, self._accept_some)

    def pause(self) -> None:
        """Leave new connections in the kernel's queue."""
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._socket)

    def throttle(self, pause_ms: float) -> None:
        """Leave new connections in the kernel's queue for a time, whatever starts the acceptor meanwhile."""
        self.pause()
        if not self._is_throttled:
            self._is_throttled = True
            self._loop.call_later(pause_ms / 1000, self._end_throttle)

    def close(self) -> None:
        """Stop for good; the kernel refuses new connections from now on."""
        self.pause()
        self._socket.close()

    def _end_throttle(self) -> None:
        self._is_throttled = False
        self.start()

    def _accept_some(self) -> None:
        for _ in range(ACCEPTS_PER_WAKE_UP):
            if self._is_throttled:
                return
            if not self._may_accept():
                self.pause()
                return
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._retry_later(error)
                    return
                continue  # this connection ended in the queue
            accepted.setblocking(False)
            self._on_accepted(accepted, host_and_port(address))

    def _retry_later(self, error: OSError) -> None:
        log.error("cannot accept connections for now", reason=os.strerror(error.errno or 0))
        self.pause()
        self._loop.call_later(RETRY_AFTER_S, self.start)
