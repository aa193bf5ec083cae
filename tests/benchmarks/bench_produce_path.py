"""CPU per request of the data plane alone, from a decoded frame to its response, without sockets.

Run it directly: `python -m tests.benchmarks.bench_produce_path [--directory DIR] [--profile ROW]`. Logs are real files
(in a temporary directory, or below DIR: on tmpfs, for example). Each row is the best of many short runs, in µs of CPU
of the thread per call; consecutive rows show the cost of each layer. No assertion depends on a time.
"""

import argparse
import cProfile
import pstats
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count, islice
from typing import cast

from immutables import Map

from broker.api.pipeline.authorization import Authorizer
from broker.api.pipeline.permission import READ_TOPIC, WRITE_TOPIC
from broker.api.pipeline.pipeline import RequestPipelines
from broker.api.pipeline.tracing import RequestTracing
from broker.api.records.produce import ProduceHandler
from broker.api.serving.dispatch import Dispatcher
from broker.api.serving.route import route
from broker.authorizer.standard import StandardAuthorizer
from broker.clock import SystemClock
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE
from broker.metadata.image.security_image import AccessControlEntry, AclsImage
from broker.metrics.requests import RequestMetrics
from broker.net.request import ConnectionInfo, Dispatch, EncodedResponse, Request
from broker.runtime.partitions.partition import ACKS_ALL, Partition
from protocol.api_keys import ApiKey
from protocol.compiler import encode_bytes
from protocol.headers import RequestHeader
from protocol.ids import LeaderEpoch
from protocol.messages import Message
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.primitives import Uuid
from protocol.records.batch import patch
from storage.files import OsFileSystem
from tests.support.harnesses.data_plane import DataPlane, batch

PRODUCE_VERSION = 9  # the version of librdkafka
FETCH_VERSION = 11
RUNS = 40
CALLS = 100
PROFILED_CALLS = 4_000
ACLS = 10_000
TOPIC = 2

Call = Callable[[int], object]


class ProduceBenchmark:
    """A data plane on real files, and requests as encoded bodies."""

    def __init__(self, directory: str) -> None:
        self.node = DataPlane(directories=(directory,), files=OsFileSystem())
        self.node.create_topic("t")
        self.node.create_topic("idle", 1000)
        clock, node = SystemClock(), self.node
        self._fetch = node.fetch_handler(max_bytes=57_671_680, clock=clock)
        produce = ProduceHandler(node.partitions, node.runtime, node.verifier)
        self._produce = produce
        table = (route(ApiKey.PRODUCE, produce, WRITE_TOPIC), route(ApiKey.FETCH, self._fetch, READ_TOPIC))
        self._connection = ConnectionInfo("bench", "PLAINTEXT", "127.0.0.1", 1)

        def pipeline(authorizer: Authorizer | None) -> Dispatch:
            metrics = RequestMetrics(clock.monotonic_ms)
            dispatcher = Dispatcher(table, clock, metrics, None, authorizer, None, RequestTracing(clock))
            return RequestPipelines(dispatcher).open(self._connection)

        self._dispatch = pipeline(None)
        self._authorized = pipeline(authorizer_with(ACLS))
        self.prepare: dict[Call, Callable[[int], None]] = {}
        """What a call needs before each run, outside of the measured time."""

    @property
    def partition(self) -> Partition:
        return self.node.partition("t")

    # ---- measured calls

    def log_append(self, size: int) -> Call:
        records, log = batch(b"x" * size), self.partition.log
        original = bytes(records[:8])

        def call(_: int) -> None:
            records[:8] = original  # the append has written its base offset
            log.append_as_leader(records, LeaderEpoch(0), now_ms=0)

        return call

    def partition_append(self, size: int) -> Call:
        records, partition = batch(b"x" * size), self.partition
        original = bytes(records[:8])

        def call(_: int) -> None:
            records[:8] = original
            partition.append(records, 1)

        return call

    def handler(self, size: int) -> Call:
        records = batch(b"x" * size)
        original = bytes(records[:8])
        request = ProduceRequest(None, 1, 0, [TopicProduceData("t", partition_data=[PartitionProduceData(0, records)])])
        context = self.node.context(PRODUCE_VERSION)

        def call(_: int) -> object:
            records[:8] = original
            return self._produce(request, context)

        return call

    def produce(self, size: int, acks: int = 1) -> Call:
        data = [PartitionProduceData(0, bytes(batch(b"x" * size)))]
        request = ProduceRequest(None, acks, 1000, [TopicProduceData("t", partition_data=data)])
        body = encode_bytes(request, PRODUCE_VERSION)

        def call(number: int) -> object:
            return self._send(ApiKey.PRODUCE, PRODUCE_VERSION, memoryview(bytearray(body)), number)

        return call

    def produce_idempotent(self, partitions: int, size: int) -> Call:
        """One request with a batch for each of `partitions`, from an idempotent producer in sequence, as by librdkafka.

        Each call has its own sequence, which the checksum covers: `prepare` encodes the bodies before a run.
        """
        sequences = count()
        topic = f"idempotent-{partitions}-{size}"
        self.node.create_topic(topic, partitions)
        value = b"x" * size
        bodies: list[memoryview] = []

        def prepare(calls: int) -> None:
            for sequence in islice(sequences, calls):
                records = bytes(batch(value, producer_id=7, producer_epoch=0, sequence=sequence))
                data = [PartitionProduceData(index, records) for index in range(partitions)]
                request = ProduceRequest(None, ACKS_ALL, 1000, [TopicProduceData(topic, partition_data=data)])
                bodies.append(memoryview(bytearray(encode_bytes(request, PRODUCE_VERSION))))
            bodies.reverse()

        def call(number: int) -> object:
            return self._send(ApiKey.PRODUCE, PRODUCE_VERSION, bodies.pop(), number)

        self.prepare[call] = prepare
        return call

    def append_as_follower(self, size: int) -> Call:
        """Append one batch of an idempotent producer as the leader's answer to a fetch."""
        self.node.create_topic(f"follower-{size}")
        log, value, sequences = self.node.partition(f"follower-{size}").log, b"x" * size, count()
        fetched: list[bytes] = []

        def prepare(calls: int) -> None:
            for sequence in islice(sequences, calls):
                records = batch(value, producer_id=7, producer_epoch=0, sequence=sequence)
                patch(records, 0, sequence, LeaderEpoch(0))
                fetched.append(bytes(records))
            fetched.reverse()

        def call(_: int) -> None:
            log.append_as_follower(fetched.pop(), now_ms=0, max_epoch=LeaderEpoch(0))

        self.prepare[call] = prepare
        return call

    def produce_authorized(self, size: int) -> Call:
        """Like `produce`, with the standard authorizer; 10,000 ACLs are loaded."""
        data = [PartitionProduceData(0, bytes(batch(b"x" * size)))]
        body = encode_bytes(
            ProduceRequest(None, 1, 1000, [TopicProduceData("t", partition_data=data)]), PRODUCE_VERSION
        )

        def call(number: int) -> object:
            header = RequestHeader(ApiKey.PRODUCE, PRODUCE_VERSION, number, "bench")
            return self._authorized(Request(header, memoryview(bytearray(body)), self._connection, 0))

        return call

    def fetch(self, size: int) -> Call:
        offset = self.partition.append(batch(b"x" * size), 1).first_offset
        request = FetchRequest(topics=[FetchTopic("t", partitions=[_at(offset, size + 200)])], max_bytes=1_000_000)
        return self._fetching(request)

    def fetch_in_session(self, size: int) -> Call:
        """Append to one partition of a thousand and fetch it in a session; the others are idle."""
        targets = [FetchTopic("idle", partitions=[_at(0, index=index) for index in range(1000)])]
        opened = self._fetch(FetchRequest(topics=targets, session_epoch=0), self.node.context(FETCH_VERSION))
        assert not isinstance(opened, Awaitable)
        partition = self.node.partition("idle", 500)
        epochs = count(1)

        def call(number: int) -> object:
            offset = partition.append(batch_of[size], 1).first_offset
            request = FetchRequest(session_id=opened.session_id, session_epoch=next(epochs))
            request.topics = [FetchTopic("idle", partitions=[_at(offset, index=500)])]
            return self._fetch(request, context)

        context = self.node.context(FETCH_VERSION)
        batch_of = {size: bytes(batch(b"x" * size))}
        return call

    def _fetching(self, request: Message) -> Call:
        body = encode_bytes(request, FETCH_VERSION)

        def call(number: int) -> object:
            return self._send(ApiKey.FETCH, FETCH_VERSION, memoryview(bytearray(body)), number)

        return call

    def _send(self, key: int, version: int, body: memoryview, number: int) -> EncodedResponse:
        header = RequestHeader(key, version, number, "bench")
        return cast(EncodedResponse, self._dispatch(Request(header, body, self._connection, 0)))


def authorizer_with(count: int) -> StandardAuthorizer:
    """Return an authorizer with `count` ACLs, of which one allows the measured topic."""
    entries = [
        AccessControlEntry(
            TOPIC, f"team-{number % 1000}.topic-{number}", 4 if number % 5 == 0 else 3, "User:a", "*", 3, 3
        )
        for number in range(count - 1)
    ]
    entries.append(AccessControlEntry(TOPIC, "t", 3, "User:*", "*", 2, 3))
    image = AclsImage(Map({Uuid(number.to_bytes(16, "big")): entry for number, entry in enumerate(entries)}))
    authorizer = StandardAuthorizer(frozenset())
    authorizer.on_metadata(MetadataDelta(EMPTY_IMAGE), EMPTY_IMAGE._replace(acls=image))
    return authorizer


def _at(offset: int, max_bytes: int = 1_000_000, *, index: int = 0) -> FetchPartition:
    return FetchPartition(index, -1, offset, partition_max_bytes=max_bytes)


def rows(bench: ProduceBenchmark) -> Iterator[tuple[str, Call]]:
    yield "append to the log, 100 B", bench.log_append(100)
    yield "append to the partition, 100 B", bench.partition_append(100)
    yield "produce handler, 100 B", bench.handler(100)
    yield "produce, 100 B, acks=1", bench.produce(100)
    yield "produce, 100 B, acks=1, 10,000 ACLs", bench.produce_authorized(100)
    yield "produce, 100 B, acks=all", bench.produce(100, ACKS_ALL)
    yield "produce, 100 B idempotent", bench.produce_idempotent(1, 100)
    yield "produce, 16 KB idempotent", bench.produce_idempotent(1, 16_000)
    yield "produce, 8 x 16 KB idempotent", bench.produce_idempotent(8, 16_000)
    yield "append as follower, 16 KB", bench.append_as_follower(16_000)
    yield "produce, 1 MB, acks=1", bench.produce(1_000_000)
    yield "fetch, 100 B", bench.fetch(100)
    yield "fetch, 1 MB", bench.fetch(1_000_000)
    yield "append and fetch 1 of 1000 in a session", bench.fetch_in_session(100)


def measure(bench: ProduceBenchmark, call: Call, calls: int) -> float:
    """Return microseconds of CPU of this thread per call, of the best run."""
    best = float("inf")
    prepare = bench.prepare.get(call)
    for _ in range(RUNS):
        if prepare is not None:
            prepare(calls)
        began = time.thread_time()
        for number in range(calls):
            call(number)
        best = min(best, time.thread_time() - began)
        bench.node.loop.run_soon()
    return best / calls * 1e6


def profile(bench: ProduceBenchmark, call: Call) -> None:
    if call in bench.prepare:
        bench.prepare[call](PROFILED_CALLS)
    profiler = cProfile.Profile()
    profiler.enable()
    for number in range(PROFILED_CALLS):
        call(number)
    profiler.disable()
    pstats.Stats(profiler, stream=sys.stdout).sort_stats("tottime").print_stats(40)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--directory", help="directory of the logs (default: a temporary directory)")
    parser.add_argument(
        "--profile", metavar="ROW", help="profile the row whose name has this prefix, instead of measuring"
    )
    parser.add_argument("--only", metavar="TEXT", default="", help="only rows whose name contains this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        bench = ProduceBenchmark(directory)
        for name, call in rows(bench):
            if options.profile is None:
                if options.only in name:
                    calls = 20 if "1 MB" in name else CALLS
                    print(f"{measure(bench, call, calls):10.2f} µs  {name}", flush=True)
            elif name.startswith(options.profile):
                profile(bench, call)


if __name__ == "__main__":
    main()
