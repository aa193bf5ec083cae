"""CPU per request of a connection's whole path, from received bytes to written bytes, without sockets.

Run it directly: `python -m tests.benchmarks.bench_request_paths [--directory DIR] [--profile ROW]`. Logs are real
files. Each row is the least thread CPU of several runs, in microseconds per request. The first line tells the form of
the build. No assertion depends on a time.
"""

import argparse
import asyncio
import cProfile
import pstats
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

from broker.api.pipeline.permission import READ_TOPIC, WRITE_TOPIC
from broker.api.pipeline.pipeline import RequestPipelines
from broker.api.pipeline.tracing import RequestTracing
from broker.api.pipeline.yielding import yields
from broker.api.records.produce import ProduceHandler
from broker.api.serving.dispatch import Dispatcher
from broker.api.serving.route import route
from broker.build_form import build_form
from broker.clock import SystemClock
from broker.logs import EventLog
from broker.metrics.requests import RequestMetrics
from broker.net.backlog import RequestBacklog
from broker.net.connection import AcceptedConnection
from broker.net.deferred_writes import DeferredWrites
from broker.net.idle import IdleOrder
from broker.net.rate_limited_log import RateLimitedLog
from broker.net.receiver import ReceiveArena
from broker.net.request import ConnectionInfo
from broker.net.server_resources import ServerResources
from broker.net.stats import ListenerStats
from broker.net.turns import Turns
from protocol.api_keys import ApiKey
from protocol.compiler import encode_bytes
from protocol.headers import decode_response
from protocol.messages import Message
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.primitives import Buffer
from storage.files import OsFileSystem
from tests.support.harnesses.data_plane import DataPlane, batch

PRODUCE_VERSION = 11
FETCH_VERSION = 12
SESSION_VERSION = 17  # topics by id
PARTITIONS = 8
PRODUCER_ID = 4_000
RUNS = 9
BATCHED_BYTES = 16_000  # one batch of the Java producer at its defaults

Frames = Callable[[int], list[bytes]]
"""Returns that many whole requests, size prefix included; calls continue each other."""


class NullTransport(asyncio.Transport):
    """A transport whose peer reads everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Buffer] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return True

    def write(self, data: Buffer) -> None:
        self.sent.append(data)

    def writelines(self, list_of_data: Any) -> None:
        self.sent.extend(list_of_data)

    def abort(self) -> None:
        raise AssertionError("the connection was closed")

    close = abort


class RequestPaths:
    """One connection to a broker whose logs are real files."""

    def __init__(self, directory: str) -> None:
        self.node = node = DataPlane(directories=(directory,), files=OsFileSystem())
        node.create_topic("t", PARTITIONS)
        for broker in (2, 3):
            node.register_broker(broker)
        self._consumed = node.create_topic("consumed", PARTITIONS)
        self._replicated = node.create_topic("replicated", PARTITIONS, replicas=(1, 2, 3))
        clock = SystemClock()
        runtime = replace(node.runtime, clock=clock)
        produce = ProduceHandler(node.partitions, runtime, node.verifier)
        fetch = node.fetch_handler(max_bytes=57_671_680, clock=clock)
        table = (route(ApiKey.PRODUCE, produce, WRITE_TOPIC), route(ApiKey.FETCH, fetch, READ_TOPIC))
        metrics = RequestMetrics(clock.monotonic_ms)
        dispatcher = Dispatcher(table, clock, metrics, None, None, None, RequestTracing(clock))
        shared = ServerResources(
            open_pipeline=RequestPipelines(dispatcher).open,
            clock=clock,
            timers=node.loop,
            turns=Turns(node.loop, yields),
            writes=DeferredWrites(node.loop, 1),  # the bench waits for each response
            arena=ReceiveArena(),
            backlog=RequestBacklog(500, -1),
            idle=IdleOrder(600_000),
            unauthenticated=IdleOrder(-1),
            warnings=RateLimitedLog(EventLog("broker.net")),
            frame_bytes_max=104_857_600,
            unauthenticated_frame_bytes_max=524_288,
        )
        self.transport = NullTransport()
        info = ConnectionInfo("bench", "PLAINTEXT", "127.0.0.1", 1)
        self.connection = AcceptedConnection(self.transport, info, shared, ListenerStats(), lambda _: None)
        self._sequence = count()
        self._correlation = count(1)

    # ---- ---- requests

    def produce(self, size: int, *, partitions: int = 1, idempotent: bool = False) -> Frames:
        """Return requests with a batch of one record for each of the first `partitions` partitions."""

        def request() -> bytes:
            if idempotent:
                options = {"producer_id": PRODUCER_ID, "producer_epoch": 0, "sequence": next(self._sequence)}
            else:
                options = {}
            records = bytes(batch(b"x" * size, **options))  # type: ignore[arg-type]
            data = [PartitionProduceData(index, records) for index in range(partitions)]
            return self._frame(
                ApiKey.PRODUCE,
                PRODUCE_VERSION,
                ProduceRequest(None, 1, 30_000, [TopicProduceData("t", partition_data=data)]),
            )

        return lambda number: [request() for _ in range(number)]

    def fetch(self, size: int) -> Frames:
        """Return requests for one batch of `size` bytes, without a session."""
        offset = self.node.partition("t").append(batch(b"x" * size), 1).first_offset
        target = FetchPartition(0, -1, offset, partition_max_bytes=size + 100)
        request = FetchRequest(topics=[FetchTopic("t", partitions=[target])], max_bytes=1_000_000, min_bytes=1)
        return lambda number: [self._frame(ApiKey.FETCH, FETCH_VERSION, request) for _ in range(number)]

    def session_fetch(self, size: int, *, moved: int = 1, follower: bool = False) -> Frames:
        """Return requests in an incremental session with all partitions of a topic. Each request names the positions of
        `moved` of them, and the response has a batch of `size` bytes of each; the others are read to their end.
        """
        name, identity = ("replicated", self._replicated) if follower else ("consumed", self._consumed)
        offsets = [self.node.partition(name, i).append(batch(b"x" * size), 1).first_offset for i in range(PARTITIONS)]
        for index in range(moved):
            self.node.partition(name, index).append(batch(b"x" * size), 1)
        offsets[moved:] = [offset + 1 for offset in offsets[moved:]]
        targets = [FetchPartition(i, 0, o, 0, 0, size + 100) for i, o in enumerate(offsets)]
        request = FetchRequest(
            topics=[FetchTopic(topic_id=identity, partitions=targets)], max_wait_ms=0, max_bytes=50_000_000, min_bytes=1
        )
        if follower:
            request.replica_state = ReplicaState(2, 1)
        request.session_epoch = 0
        answer = self.send([self._frame(ApiKey.FETCH, SESSION_VERSION, request)])
        opened = decode_response(FetchResponse, SESSION_VERSION, answer)[1]
        assert opened.session_id, opened
        assert len(opened.responses[0].partitions) == PARTITIONS, opened
        targets = [replace(each, fetch_offset=each.fetch_offset + 1, partition_max_bytes=1_048_576) for each in targets]
        epochs = count(1)

        def next_request() -> bytes:
            named = [FetchTopic(topic_id=identity, partitions=targets[:moved])]
            following = replace(request, topics=named, session_id=opened.session_id, session_epoch=next(epochs))
            return self._frame(ApiKey.FETCH, SESSION_VERSION, following)

        return lambda number: [next_request() for _ in range(number)]

    def _frame(self, key: int, version: int, request: Message) -> bytes:
        client = b"producer-1"
        header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + next(self._correlation).to_bytes(4, "big")
        header += len(client).to_bytes(2, "big") + client + b"\0"
        body = encode_bytes(request, version)
        return (len(header) + len(body)).to_bytes(4, "big") + header + body

    def send(self, frames: list[bytes]) -> bytes:
        """Feed the requests to the connection one by one, as the event loop does; return the last response, without
        its size prefix.
        """
        answer: list[Buffer] = []
        connection, sent = self.connection, self.transport.sent
        for frame in frames:
            position, size = 0, len(frame)
            while position < size:
                room = connection.get_buffer(-1)
                taken = min(len(room), size - position)
                room[:taken] = frame[position : position + taken]
                connection.buffer_updated(taken)
                position += taken
            assert sent, "the request has no response"
            answer[:] = sent
            sent.clear()
        return b"".join(answer)[4:]


def rows(paths: RequestPaths) -> Iterator[tuple[str, Frames, int]]:
    """Return the name, the requests and their number per run for each kind of request."""
    yield "produce, 100 B", paths.produce(100), 2_000
    yield "produce, 16 KB, idempotent", paths.produce(BATCHED_BYTES, idempotent=True), 1_000
    yield "produce, 8 x 16 KB, idempotent", paths.produce(BATCHED_BYTES, partitions=8, idempotent=True), 200
    yield "fetch, 100 B", paths.fetch(100), 2_000
    yield "fetch in a session, 100 B", paths.session_fetch(100), 2_000
    yield "fetch in a session, 8 x 16 KB", paths.session_fetch(BATCHED_BYTES, moved=PARTITIONS), 500
    yield "follower's fetch, 8 x 16 KB", paths.session_fetch(BATCHED_BYTES, moved=PARTITIONS, follower=True), 500


def check(paths: RequestPaths, frames: Frames) -> None:
    """Send one request, and raise AssertionError if a partition has an error or a fetch returns no records."""
    (frame,) = frames(1)
    answer = paths.send([frame])
    if int.from_bytes(frame[4:6], "big") == ApiKey.PRODUCE:
        produced = decode_response(ProduceResponse, PRODUCE_VERSION, answer)[1]
        codes = [each.error_code for topic in produced.responses for each in topic.partition_responses]
        assert not any(codes), codes
    else:
        fetched = (
            decode_response(FetchResponse, int.from_bytes(frame[6:8], "big"), answer)[1].responses[0].partitions[0]
        )
        assert not fetched.error_code, fetched
        assert fetched.records, fetched


def measure(paths: RequestPaths, frames: Frames, number: int) -> float:
    """Return microseconds of thread CPU per request, of the best run."""
    best = float("inf")
    for _ in range(RUNS):
        requests = frames(number)
        began = time.thread_time()
        paths.send(requests)
        best = min(best, time.thread_time() - began)
        paths.node.loop.run_soon()
    return best / number * 1e6


def profile(paths: RequestPaths, frames: Frames, number: int) -> None:
    """Print the functions that take the most time of five runs."""
    requests = frames(number * 5)
    profiler = cProfile.Profile()
    profiler.enable()
    paths.send(requests)
    profiler.disable()
    pstats.Stats(profiler, stream=sys.stdout).sort_stats("tottime").print_stats(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--directory", help="directory of the logs (default: a temporary directory)")
    parser.add_argument("--profile", metavar="ROW", help="profile the row with this prefix, instead of measuring")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        paths = RequestPaths(directory)
        print(f"{build_form()}, Python {sys.version.split()[0]}")
        for name, frames, number in rows(paths):
            check(paths, frames)
            if options.profile is None:
                print(f"{measure(paths, frames, number):10.1f} µs  {name}")
            elif name.startswith(options.profile):
                profile(paths, frames, number)


if __name__ == "__main__":
    main()
