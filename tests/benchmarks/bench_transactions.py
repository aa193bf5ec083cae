"""CPU per transaction of the data plane and the transaction coordinator, from encoded requests to encoded responses,
without sockets.

Run it directly: `python -m tests.benchmarks.bench_transactions [--profile]`. One node leads everything, so that no
request waits for a replica. A transaction is one Produce with its first batch and one EndTxn (transaction version 2),
and the work that follows: the addition of the partition, three records of `__transaction_state`, and the marker.
"""

import argparse
import asyncio
import cProfile
import pstats
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, TypeVar, cast

from broker.api.pipeline.permission import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from broker.api.pipeline.pipeline import RequestPipelines
from broker.api.records.produce import ProduceHandler
from broker.api.serving.dispatch import Dispatcher
from broker.api.serving.route import route
from broker.api.transactions.end_txn import EndTxnHandler
from broker.api.transactions.write_txn_markers import WriteTxnMarkersHandler
from broker.clock import SystemClock
from broker.config.broker_config import BrokerConfig
from broker.metadata.image.features import TRANSACTION_VERSION
from broker.metadata.image.topic_names import TRANSACTION_STATE_TOPIC
from broker.metrics.requests import RequestMetrics
from broker.net.request import ConnectionInfo, Request
from broker.node.transactions import build_transactions
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from broker.runtime.coordinators.loopback import ClosablePeers, LoopbackPeers
from broker.runtime.coordinators.own_verification import OwnVerification
from broker.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from broker.runtime.coordinators.transaction_verifier import TransactionVerifier, VerifierSettings
from broker.transactions.init_producer import InitRequest
from broker.transactions.state import ProducerIdAndEpoch
from protocol.api_keys import ApiKey
from protocol.compiler import encode_bytes
from protocol.headers import RequestHeader, decode_response
from protocol.messages import Message
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.metadata_records import FeatureLevelRecord
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from protocol.records.builder import Record, build_batch
from storage.files import OsFileSystem
from tests.support.harnesses.data_plane import BROKER_ID, LISTENER, DataPlane

PRODUCE_VERSION, END_TXN_VERSION = 12, 5
PRODUCERS, TRANSACTIONS, RUNS = 100, 2_000, 7
RECORDS, SIZE = 100, 100
STATE_PARTITIONS = 50

R = TypeVar("R", bound=Message)


class Ids:
    """A source of producer ids."""

    def __init__(self) -> None:
        self._ids = count(1000)

    async def next_id(self) -> int:
        return next(self._ids)


class TransactionBenchmark:
    """A node on real files, and producers with a session each."""

    def __init__(self, directory: str) -> None:
        self._node = node = DataPlane(directories=(directory,), files=OsFileSystem())
        node.apply(FeatureLevelRecord(TRANSACTION_VERSION, 2))
        node.create_topic("t")
        self._clock = SystemClock()
        self._transactions = self._coordinator(directory)
        verifier = TransactionVerifier(
            node.runtime, node.coordinators, lambda: node.image, LISTENER, lambda: VerifierSettings(1, 1, 1), BROKER_ID
        )
        verifier.own = OwnVerification(self._transactions, lambda: node.image)
        node.publishers.append(self._transactions)
        node.create_topic(TRANSACTION_STATE_TOPIC, STATE_PARTITIONS)
        for index in range(STATE_PARTITIONS):
            self._transactions.on_hosted(node.partition(TRANSACTION_STATE_TOPIC, index))
        produce = ProduceHandler(node.partitions, node.runtime, verifier)
        table = (
            route(ApiKey.PRODUCE, produce, WRITE_TOPIC),
            route(ApiKey.END_TXN, EndTxnHandler(self._transactions), WRITE_TRANSACTIONAL_ID),
        )
        self._connection = ConnectionInfo("bench", LISTENER, "127.0.0.1", 1)
        self._dispatch = RequestPipelines(
            Dispatcher(table, self._clock, RequestMetrics(self._clock.monotonic_ms))
        ).open(self._connection)
        self._numbers = count(1)
        self._producers = {name: self._session(name) for name in (f"producer-{n:030}" for n in range(PRODUCERS))}
        self._records = [Record(node.clock.now_ms(), None, b"x" * SIZE)] * RECORDS

    def _coordinator(self, directory: str) -> TransactionCoordinator:
        node = self._node
        markers = WriteTxnMarkersHandler(
            node.partitions, cast(GroupCoordinator, None), node.runtime, timeout_ms=lambda: 1000
        )

        def write(request: Message) -> Message | Coroutine[Any, Any, Message]:
            assert isinstance(request, WriteTxnMarkersRequest)
            return markers.write_own(request)

        loop = cast(asyncio.AbstractEventLoop, node.loop)
        peers = LoopbackPeers(loop, cast(ClosablePeers, node.coordinators), lambda _: True, write)
        config = BrokerConfig(
            {
                "process.roles": "broker",
                "node.id": str(BROKER_ID),
                "controller.quorum.bootstrap.servers": "localhost:9093",
                "controller.listener.names": "CONTROLLER",
                "listeners": f"{LISTENER}://:9092",
                "log.dirs": directory,
            }
        )
        return build_transactions(node.runtime, config, node.partitions, lambda: node.image, peers, Ids(), None)

    def _session(self, name: str) -> ProducerIdAndEpoch:
        return self._node.run(self._transactions.init_producer(name, InitRequest(60_000, None))).value

    def run(self, transactions: int, timed: Callable[[], float]) -> float:
        """Run transactions of all producers in turns; return the time that the node took."""
        took = 0.0
        for name, _ in zip(self._names(), range(transactions), strict=False):
            producer = self._producers[name]
            batch = build_batch(
                self._records,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                base_sequence=0,
                transactional=True,
            )
            data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])]
            produce = self._request(ApiKey.PRODUCE, PRODUCE_VERSION, ProduceRequest(name, -1, 1000, data))
            end = self._request(ApiKey.END_TXN, END_TXN_VERSION, EndTxnRequest(name, *producer, True))
            began = timed()
            produced = self._dispatch(produce)
            ended = self._dispatch(end)
            self._node.loop.run_soon()
            took += timed() - began
            code = _response(produced, ProduceResponse, PRODUCE_VERSION).responses[0].partition_responses[0].error_code
            following = _response(ended, EndTxnResponse, END_TXN_VERSION)
            assert (code, following.error_code) == (0, 0)
            self._producers[name] = ProducerIdAndEpoch(following.producer_id, following.producer_epoch)
        return took

    def _names(self) -> list[str]:
        return [*self._producers] * (TRANSACTIONS // PRODUCERS)

    def _request(self, key: ApiKey, version: int, message: Message) -> Request:
        body = memoryview(bytearray(encode_bytes(message, version)))
        return Request(RequestHeader(key, version, next(self._numbers), "bench"), body, self._connection, 0)


def _response(encoded: object, expected: type[R], version: int) -> R:
    assert isinstance(encoded, list), "the response is not there at once"
    return decode_response(expected, version, b"".join(encoded)[4:])[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--directory", help="directory of the logs (default: a temporary directory)")
    parser.add_argument("--profile", action="store_true", help="profile, instead of measuring")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        bench = TransactionBenchmark(directory)
        if not options.profile:
            best = min(bench.run(TRANSACTIONS, time.process_time) for _ in range(RUNS))
            print(f"{best / TRANSACTIONS * 1e6:10.2f} µs  transaction of {RECORDS} records")
            return
        bench.run(TRANSACTIONS, lambda: 0.0)
        profiler = cProfile.Profile()
        profiler.enable()
        bench.run(TRANSACTIONS, lambda: 0.0)
        profiler.disable()
        pstats.Stats(profiler, stream=sys.stdout).sort_stats("tottime").print_stats(60)


if __name__ == "__main__":
    main()
