"""Fault-injecting proxy in front of a real S3 server: it refuses, delays and cuts requests, loses and damages
responses, hides objects, repeats stale listings, and disappears.

Requests pass unchanged, with host names and signatures, so a client uses this port as if it were the server. The proxy
is a process (`python -m tests.support.processes.s3_proxy`) that takes commands as lines on standard input and responds
to each with a line of JSON; it ends when the input closes.
"""

import asyncio
import contextlib
import json
import random
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType

from tests.support.kafka.apache_kafka import REPOSITORY, free_ports, wait_for_port

_PIECE = 1 << 16
_LONG_S = 60.0
"""Maximum delay of a missing response, unless the client gives up before."""
_DRIPS = 8
"""Number of pieces of a slow body."""
_STARTED = 20
"""Seconds for the process to listen."""


class Fault(StrEnum):
    """Fault of a request."""

    THROTTLED = "throttled"
    FAILED = "failed"
    SLOW = "slow"
    CUT_REQUEST = "cut request"
    CUT_ANSWER = "cut answer"
    LOST_ANSWER = "lost answer"
    """The request is executed and the connection ends without a response."""
    LATE_ANSWER = "late answer"
    """The request is executed and the response is withheld until the client times out."""
    SLOW_BODY = "slow body"
    CORRUPT_BODY = "corrupt body"
    """One bit of an object is flipped."""
    NO_SUCH_KEY = "no such key"
    """A get responds that an existing object does not exist."""
    STALE_LIST = "stale list"
    """A listing repeats the last one for the same request, if there was one."""


PASSING = tuple(Fault)[: tuple(Fault).index(Fault.CORRUPT_BODY)]
"""Random faults: failures and successes without wrong contents."""
_OF_OBJECTS = (Fault.SLOW_BODY, Fault.CORRUPT_BODY, Fault.NO_SUCH_KEY)
"""Faults of object reads only."""


_REFUSALS = {
    Fault.THROTTLED: (503, "SlowDown", "Please reduce your request rate."),
    Fault.FAILED: (500, "InternalError", "We encountered an internal error. Please try again."),
    Fault.NO_SUCH_KEY: (404, "NoSuchKey", "The specified key does not exist."),
}


class S3Proxy:
    """Before the server at `upstream`, on a port that stays the same; a context manager that starts it.

    `host` is the address that clients are told; one that is not of loopback is reached from other network namespaces.
    """

    def __init__(self, upstream: int, seed: int = 0, host: str = "127.0.0.1") -> None:
        (self.port,) = free_ports(1)
        self._host = host
        listened_on = host if host == "127.0.0.1" else "0.0.0.0"
        own = (listened_on, str(self.port), str(upstream), str(seed))
        self._command = [sys.executable, "-m", "tests.support.processes.s3_proxy", *own]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{self._host}:{self.port}"

    def set_share(self, share: float) -> None:
        """Inject faults into this share of the requests from now on."""
        self._order("share", share)

    def strike(self, fault: Fault, share: float = 1.0, *, method: str = "", key_part: str = "") -> None:
        """Inject `fault` into this share of the requests with this method and text in the target, until `relent`. The
        first matching strike applies.
        """
        self._order("strike", fault, share, method, key_part)

    def relent(self) -> None:
        """Remove every `strike`."""
        self._order("relent")

    def vanish(self) -> None:
        """Break all connections and refuse new ones until `come_back`."""
        self._order("vanish")

    def come_back(self) -> None:
        self._order("come_back")

    def counts(self) -> dict[str, int]:
        """Return the number of requests as `requests`, and the number of injected faults by kind."""
        return dict(self._order("counts"))

    def _order(self, *words: object) -> dict[str, int]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(words)}\n".encode())
        self._process.stdin.flush()
        answer: dict[str, int] = json.loads(self._process.stdout.readline())
        return answer

    def __enter__(self) -> "S3Proxy":
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY)
        wait_for_port(self.port, self._process, _STARTED)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()


# -- the process -------------------------------------------------------------------------------------------------------


class _Cut(Exception):
    """Signal to end this connection."""


@dataclass(frozen=True, slots=True)
class _Head:
    """The first line and the headers of a request or response."""

    first: bytes
    headers: list[tuple[bytes, bytes]]

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> "_Head":
        """Read a head. Raises IncompleteReadError at the end of a connection."""
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).rstrip(b"\r\n").split(b"\r\n")
        pairs = (line.partition(b":") for line in lines)
        return cls(first, [(name.strip().lower(), value.strip()) for name, _, value in pairs])

    def get(self, name: bytes) -> bytes:
        return next((value for each, value in self.headers if each == name), b"")

    @property
    def is_chunked(self) -> bool:
        return self.get(b"transfer-encoding").lower() == b"chunked"

    @property
    def length(self) -> int:
        return int(self.get(b"content-length") or 0)

    @property
    def status(self) -> int:
        return int(self.first.split()[1])

    def with_length(self, length: int) -> "_Head":
        """Return the head for a body that is sent whole."""
        rest = [each for each in self.headers if each[0] not in (b"content-length", b"transfer-encoding")]
        return _Head(self.first, [*rest, (b"content-length", b"%d" % length)])

    def encode(self) -> bytes:
        lines = [self.first, *(name + b": " + value for name, value in self.headers if name != b"expect")]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    @property
    def method(self) -> str:
        """Method of a request."""
        return self.first.split()[0].decode()

    @property
    def target(self) -> str:
        """Target of a request."""
        return self.first.split()[1].decode()

    @property
    def is_listing(self) -> bool:
        return self.method == "GET" and "list-type=" in self.target

    @property
    def is_read(self) -> bool:
        """Whether the request reads an object."""
        return self.method == "GET" and "?" not in self.target


@dataclass(frozen=True, slots=True)
class _Strike:
    """A fault planned by `S3Proxy.strike`."""

    fault: Fault
    share: float
    method: str
    key_part: str

    def suits(self, request: _Head) -> bool:
        if self.method not in ("", request.method) or self.key_part not in request.target:
            return False
        if self.fault is Fault.STALE_LIST:
            return request.is_listing
        return request.is_read or self.fault not in _OF_OBJECTS


async def _relay(
    head: _Head, source: asyncio.StreamReader, target: asyncio.StreamWriter | None, *, share: float = 1.0
) -> None:
    """Relay a body, or only its beginning and then raise _Cut."""
    if head.is_chunked:
        await _relay_chunks(source, target)
    left = head.length
    stop_at = -1 if share == 1.0 else int(left * (1 - share))
    while left:
        piece = await source.read(min(left, _PIECE))
        if not piece:
            raise _Cut
        left -= len(piece)
        if target is not None:
            target.write(piece)
            await target.drain()
        if left <= stop_at:
            raise _Cut
    if share < 1.0:
        raise _Cut


async def _relay_chunks(source: asyncio.StreamReader, target: asyncio.StreamWriter | None) -> None:
    while True:
        line = await source.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        rest = await source.readexactly(size + 2)
        if target is not None:
            target.write(line + rest)
            await target.drain()
        if not size:
            return


class _Proxy:
    """State of the process."""

    def __init__(self, host: str, port: int, upstream: int, seed: int) -> None:
        self._host = host
        self._port = port
        self._upstream = upstream
        self._random = random.Random(seed)
        self._share = 0.0
        self._counts: Counter[str] = Counter()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._strikes: list[_Strike] = []
        self._listings: dict[str, bytes] = {}

    # ---- commands

    async def obey(self) -> None:
        orders = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
        await self._listen()
        while line := await orders.readline():
            word, *arguments = json.loads(line)
            match word:
                case "share":
                    self._share = float(arguments[0])
                case "strike":
                    fault, share, method, key_part = arguments
                    self._strikes.append(_Strike(Fault(fault), float(share), method, key_part))
                case "relent":
                    self._strikes.clear()
                case "vanish":
                    self._vanish()
                case "come_back":
                    await self._listen()
            sys.stdout.write(json.dumps(self._counts) + "\n")
            sys.stdout.flush()

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=1 << 18)

    def _vanish(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._connections):
            writer.transport.abort()

    # ---- connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._upstream, limit=1 << 18)
            with contextlib.closing(back):
                while True:
                    await self._pass_one(await _Head.read(reader), (reader, writer), (there, back))
        except (_Cut, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._connections.discard(writer)
            writer.transport.abort()

    def _fate(self, request: _Head) -> Fault | None:
        self._counts["requests"] += 1
        fault = self._struck(request) or self._chance()
        if fault is not None:
            self._counts[fault] += 1
        return fault

    def _struck(self, request: _Head) -> Fault | None:
        suiting = (each for each in self._strikes if each.suits(request))
        return next((each.fault for each in suiting if self._random.random() < each.share), None)

    def _chance(self) -> Fault | None:
        return self._random.choice(PASSING) if self._random.random() < self._share else None

    async def _pass_one(
        self,
        request: _Head,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Relay one request and its response."""
        fault = self._fate(request)
        if request.get(b"expect"):
            client[1].write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if fault in _REFUSALS:
            await _relay(request, client[0], None)
            await _refuse(client[1], *_REFUSALS[fault])
            return
        if fault is Fault.SLOW:
            await asyncio.sleep(self._random.uniform(0.2, 1.5))
        server[1].write(request.encode())
        await _relay(request, client[0], server[1], share=0.5 if fault is Fault.CUT_REQUEST else 1.0)
        await self._answer(request, fault, client, server)

    async def _answer(
        self,
        request: _Head,
        fault: Fault | None,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        answer = await _Head.read(server[0])
        has_body = request.method != "HEAD" and answer.status not in (204, 304)
        if fault is Fault.LOST_ANSWER:
            raise _Cut
        if fault is Fault.LATE_ANSWER:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(client[0].read(1), _LONG_S)
            raise _Cut
        if has_body and (request.is_listing or fault in (Fault.SLOW_BODY, Fault.CORRUPT_BODY)):
            body = await _read_body(answer, server[0])
            await self._send_whole(request, fault, answer, body, client[1])
        else:
            client[1].write(answer.encode())
            if has_body:
                await _relay(answer, server[0], client[1], share=0.5 if fault is Fault.CUT_ANSWER else 1.0)
        await client[1].drain()
        if fault is Fault.CUT_ANSWER or answer.get(b"connection").lower() == b"close":
            raise _Cut

    async def _send_whole(
        self, request: _Head, fault: Fault | None, answer: _Head, body: bytes, client: asyncio.StreamWriter
    ) -> None:
        """Send a complete response; the server's errors pass unchanged."""
        is_good = answer.status in (200, 206)
        if request.is_listing and is_good:
            if fault is Fault.STALE_LIST:
                body = self._listings.get(request.target, body)
            self._listings[request.target] = body
        if fault is Fault.CORRUPT_BODY and is_good and body:
            flipped = bytearray(body)
            flipped[self._random.randrange(len(body))] ^= 1 << self._random.randrange(8)
            body = bytes(flipped)
        if fault is Fault.CUT_ANSWER:
            client.write(answer.with_length(len(body)).encode() + body[: len(body) // 2])
            return
        client.write(answer.with_length(len(body)).encode())
        if fault is not Fault.SLOW_BODY:
            client.write(body)
            return
        for start in range(0, len(body), step := len(body) // _DRIPS + 1):
            client.write(body[start : start + step])
            await client.drain()
            await asyncio.sleep(self._random.uniform(0.02, 0.15))


async def _read_body(head: _Head, source: asyncio.StreamReader) -> bytes:
    if not head.is_chunked:
        return await source.readexactly(head.length)
    body = b""
    while True:
        size = int((await source.readuntil(b"\r\n")).split(b";")[0], 16)
        body += (await source.readexactly(size + 2))[:size]
        if not size:
            return body


async def _refuse(client: asyncio.StreamWriter, status: int, code: str, message: str) -> None:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    headers = f"HTTP/1.1 {status} {code}\r\ncontent-type: application/xml\r\ncontent-length: {len(body)}\r\n\r\n"
    client.write(headers.encode() + body)
    await client.drain()


def main() -> None:
    host, *numbers = sys.argv[1:]
    asyncio.run(_Proxy(host, *map(int, numbers)).obey())


if __name__ == "__main__":
    main()
