"""The codec alone, against kio's (whose readers are compiled Rust): `python -m tests.benchmarks.bench_codec`.

Each row is the best of several runs, to reduce the effect of a busy machine, in microseconds per message; the ratio is
kio's time divided by Ottla's. Both process the same bytes, whose equality `tests/protocol/test_against_kio.py` checks.
"""

import io
import sys
import timeit
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kio.serial import entity_reader, entity_writer

from protocol import compiler
from protocol.messages import Message
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.protocol.kio_models import kio_class

REPEATS = 9
RUN_S = 0.02


class Row(NamedTuple):
    """Microseconds per message; `peer_us` is kio's."""

    name: str
    ours_us: float
    peer_us: float


def produce(records_bytes: int = 1100) -> ProduceRequest:
    partition = PartitionProduceData(index=3, records=bytes(records_bytes))
    return ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name="topic", partition_data=[partition])]
    )


def produced() -> ProduceResponse:
    partition = PartitionProduceResponse(index=3, base_offset=1_000_000)
    return ProduceResponse(responses=[TopicProduceResponse(name="topic", partition_responses=[partition])])


def fetch(partitions: int = 100) -> FetchRequest:
    rows = [FetchPartition(partition=i, fetch_offset=i * 1000, partition_max_bytes=1 << 20) for i in range(partitions)]
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="topic", partitions=rows)])


def fetched(partitions: int = 100) -> FetchResponse:
    rows = [PartitionData(partition_index=i, high_watermark=i, records=bytes(100)) for i in range(partitions)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="topic", partitions=rows)])


def metadata(topics: int = 10, partitions: int = 10) -> MetadataResponse:
    def topic(name: str) -> MetadataResponseTopic:
        replicas = [1, 2, 3]
        rows = [
            MetadataResponsePartition(
                partition_index=i, leader_id=1, leader_epoch=3, replica_nodes=replicas, isr_nodes=replicas
            )
            for i in range(partitions)
        ]
        return MetadataResponseTopic(name=name, partitions=rows)

    brokers = [MetadataResponseBroker(node_id=i, host="broker.example.org", port=9092) for i in range(3)]
    names = [f"topic-{i}" for i in range(topics)]
    return MetadataResponse(brokers=brokers, cluster_id="c" * 22, controller_id=1, topics=[topic(n) for n in names])


CASES: tuple[tuple[str, Message, int], ...] = (
    ("Produce v9 request, 1 partition", produce(), 9),
    ("Produce v9 response, 1 partition", produced(), 9),
    ("Fetch v12 request, 1 partition", fetch(1), 12),
    ("Fetch v12 request, 100 partitions", fetch(), 12),
    ("Fetch v12 response, 1 partition", fetched(1), 12),
    ("Fetch v12 response, 100 partitions", fetched(), 12),
    ("Metadata v12 response, 10 x 10 partitions", metadata(), 12),
)


def microseconds(function: Callable[[], object]) -> float:
    timer = timeit.Timer(function)
    count = max(1, int(RUN_S / max(timer.timeit(3) / 3, 1e-9)))
    return min(timer.repeat(REPEATS, count)) / count * 1e6


def rows() -> Iterator[Row]:
    for name, message, version in CASES:
        cls, model = type(message), kio_class(type(message), version)
        encoded = compiler.encode_bytes(message, version)
        read, write = entity_reader(model), entity_writer(model)
        entity, _ = read(encoded, 0)

        def ours(cls: type[Message] = cls, encoded: bytes = encoded, version: int = version) -> object:
            return compiler.decode(cls, encoded, version)

        yield Row(f"{name}, decode", microseconds(ours), microseconds(lambda: read(encoded, 0)))  # noqa: B023
        yield Row(
            f"{name}, encode",
            microseconds(lambda: compiler.encode(message, version)),  # noqa: B023
            microseconds(lambda: write(io.BytesIO(), entity)),  # noqa: B023
        )


def main() -> None:
    sys.stdout.write(f"{'':<52}{'ours µs':>9}{'kio µs':>10}{'ratio':>8}\n")
    for row in rows():
        sys.stdout.write(f"{row.name:<52}{row.ours_us:>9.2f}{row.peer_us:>10.2f}{row.peer_us / row.ours_us:>8.1f}\n")


if __name__ == "__main__":
    main()
