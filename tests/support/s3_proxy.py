"""A bad way to a good S3 server: a proxy that refuses, delays and cuts requests, loses answers, and goes away.

It passes requests on as they are, names and signatures with them, so that a client that is told of this port works as
with the server itself. A process of its own (`python -m tests.support.s3_proxy`), which takes orders as lines on its
standard input and answers each with a line of JSON; it ends when that closes.
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

from tests.support.apache_kafka import REPOSITORY, free_ports, wait_for_port

_PIECE = 1 << 16
_LONG_S = 60.0
"""So long the answer of nobody is waited for, unless the client gives up before."""
_STARTED = 20
"""Seconds for the process to listen."""


class Fault(StrEnum):
    """What happens to a request; a choice among all of these for each that something happens to."""

    THROTTLED = "throttled"
    FAILED = "failed"
    SLOW = "slow"
    CUT_REQUEST = "cut request"
    CUT_ANSWER = "cut answer"
    LOST_ANSWER = "lost answer"
    """What was asked for is done, and the connection ends."""
    LATE_ANSWER = "late answer"
    """What was asked for is done, and nothing comes: the client runs into its timeout."""


_REFUSALS = {
    Fault.THROTTLED: (503, "SlowDown", "Please reduce your request rate."),
    Fault.FAILED: (500, "InternalError", "We encountered an internal error. Please try again."),
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
        self._command = [sys.executable, "-m", "tests.support.s3_proxy", *own]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{self._host}:{self.port}"

    def set_share(self, share: float) -> None:
        """So many of the requests from now on meet a fault."""
        self._order("share", share)

    def vanish(self) -> None:
        """Connections end in the middle of what they carry, and new ones are refused, until `come_back`."""
        self._order("vanish")

    def come_back(self) -> None:
        self._order("come_back")

    def counts(self) -> dict[str, int]:
        """How many requests came so far, `requests`, and how many met each fault."""
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
    """This connection ends now."""


@dataclass(frozen=True, slots=True)
class _Head:
    """The first line of a request or an answer, and its headers."""

    first: bytes
    headers: list[tuple[bytes, bytes]]

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> "_Head":
        """Raises IncompleteReadError at the end of a connection."""
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

    def encode(self) -> bytes:
        lines = [self.first, *(name + b": " + value for name, value in self.headers if name != b"expect")]
        return b"\r\n".join(lines) + b"\r\n\r\n"


async def _relay(
    head: _Head, source: asyncio.StreamReader, target: asyncio.StreamWriter | None, *, share: float = 1.0
) -> None:
    """Passes a body on, or so much of it and then raises _Cut."""
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

    # ---- orders

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

    def _fate(self) -> Fault | None:
        self._counts["requests"] += 1
        if self._random.random() >= self._share:
            return None
        fault = self._random.choice(list(Fault))
        self._counts[fault] += 1
        return fault

    async def _pass_one(
        self,
        request: _Head,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """One request and its answer."""
        fault = self._fate()
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
        has_body = not request.first.startswith(b"HEAD ") and answer.status not in (204, 304)
        if fault is Fault.LOST_ANSWER:
            raise _Cut
        if fault is Fault.LATE_ANSWER:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(client[0].read(1), _LONG_S)
            raise _Cut
        client[1].write(answer.encode())
        if has_body:
            await _relay(answer, server[0], client[1], share=0.5 if fault is Fault.CUT_ANSWER else 1.0)
        await client[1].drain()
        if fault is Fault.CUT_ANSWER or answer.get(b"connection").lower() == b"close":
            raise _Cut


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
