"""Apache Kafka's own performance tools as workloads: the Java clients at their defaults and with usual settings."""

import re
import uuid
from collections.abc import Mapping

from tests.benchmarks.clients.measured import Brokers, Topics, delete_topic, with_cost
from tests.benchmarks.workloads import HIGHER, LOWER
from tests.support.kafka.apache_kafka import run_tool
from tests.support.kafka.java_options import OPTIMIZED

PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
END_TO_END = "org.apache.kafka.tools.EndToEndLatency"
TIME_LIMIT_S = 600.0
_SENT = re.compile(r"(?P<count>\d+) (steady state )?records sent, (?P<rate>[\d.]+) records/sec .* (?P<p99>\d+) ms 99th")


class JavaProduce:
    """MB/s of one `kafka-producer-perf-test`, its p99 latency, and the processor time of the brokers per MB.

    A tenth of the records warms the client's JVM up and is not counted.
    """

    def __init__(
        self,
        label: str,
        size: int,
        count: int,
        topics: Topics,
        properties: Mapping[str, str] = {},
        *,
        transaction_ms: int = 0,
    ) -> None:
        self._rate, self._cost = f"Java producer, {label}", f"Java producer, {label}, brokers' CPU"
        self._size, self._count, self._topics = size, count, topics
        self._properties, self._transaction_ms = properties, transaction_ms
        self.figures = {self._rate: ("MB/s", HIGHER), self._cost: ("ms/MB", LOWER)}

    def run(self, side: Brokers) -> dict[str, float]:
        """Run once, with a new topic."""
        topic = self._topics.create(side, "java")
        warm_up = self._count // 10
        megabytes = self._size * (self._count + warm_up) / 1e6
        output, figures = with_cost(side, self._cost, megabytes, lambda: self.fill(side, topic, warm_up))
        delete_topic(side, topic)
        last = output.splitlines()[-1]
        found = _SENT.search(last)
        assert found, output
        return {self._rate: float(found["rate"]) * self._size / 1e6, **figures}

    def fill(self, side: Brokers, topic: str, warm_up: int = 0) -> str:
        """Produce all records and `warm_up` more to an existing topic; return the output of the tool."""
        properties = [f"{key}={value}" for key, value in self._properties.items()]
        count = self._count + warm_up
        arguments = ["--bootstrap-server", side.bootstrap, "--topic", topic, "--num-records", str(count)]
        arguments += ["--throughput", "-1", "--record-size", str(self._size)]
        arguments += ["--warmup-records", str(warm_up)] if warm_up else []
        arguments += ["--command-property", *properties] if properties else []
        if self._transaction_ms:
            arguments += ["--transaction-duration-ms", str(self._transaction_ms)]
        return run_tool(PRODUCER, *arguments, timeout_s=TIME_LIMIT_S, options=OPTIMIZED)


class JavaConsume:
    """MB/s of one `kafka-consumer-perf-test` from the page cache, without the time of joining its group, and the
    processor time of the brokers per MB.
    """

    def __init__(self, label: str, size: int, count: int, topics: Topics, properties: Mapping[str, str] = {}) -> None:
        self._rate, self._cost = f"Java consumer, {label}", f"Java consumer, {label}, brokers' CPU"
        self._fill = JavaProduce(label, size, count, topics, {"batch.size": "65536", **properties})
        self._size, self._count, self._shape = size, count, topics
        self._topics: dict[str, str] = {}
        self.figures = {self._rate: ("MB/s", HIGHER), self._cost: ("ms/MB", LOWER)}

    def run(self, side: Brokers) -> dict[str, float]:
        """Run once over a topic that is filled once per broker."""
        topic = self._topics.get(side.name)
        if topic is None:
            topic = self._topics[side.name] = self._shape.create(side, "java-read")
            self._fill.fill(side, topic)
        megabytes = self._size * self._count / 1e6
        output, figures = with_cost(side, self._cost, megabytes, lambda: self._consume(side, topic))
        # Columns: start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s.
        columns = output.splitlines()[-1].split(", ")
        return {self._rate: float(columns[9]) * self._size / 1e6, **figures}

    def _consume(self, side: Brokers, topic: str) -> str:
        arguments = ["--bootstrap-server", side.bootstrap, "--topic", topic, "--num-records", str(self._count)]
        arguments += ["--group", uuid.uuid4().hex, "--hide-header"]
        return run_tool(CONSUMER, *arguments, timeout_s=TIME_LIMIT_S, options=OPTIMIZED)


class EndToEnd:
    """Milliseconds from send to receipt of `e2e-latency`: one record at a time, acks=all."""

    COUNT, SIZE = 5_000, 100

    def __init__(self) -> None:
        self._names = {name: f"Java end to end, one record at a time, {name}" for name in ("p50", "p99")}
        self.figures = {name: ("ms", LOWER) for name in self._names.values()}

    def run(self, side: Brokers) -> dict[str, float]:
        """Run once, with a new topic."""
        topic = Topics().create(side, "end-to-end")
        arguments = ["--bootstrap-server", side.bootstrap, "--topic", topic, "--num-records", str(self.COUNT)]
        arguments += ["--producer-acks", "all", "--record-size", str(self.SIZE)]
        output = run_tool(END_TO_END, *arguments, options=OPTIMIZED)
        delete_topic(side, topic)
        found = re.search(r"50th = (?P<p50>[\d.]+), 99th = (?P<p99>[\d.]+)", output)
        assert found, output
        return {name: float(found[key]) for key, name in self._names.items()}
