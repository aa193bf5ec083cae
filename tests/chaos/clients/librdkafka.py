"""librdkafka client program of the chaos run: a producer, a consumer, or one or repeated readings of the topic.

tests/chaos/programs.py describes arguments and standard input, events.py the output.
"""

import faulthandler
import json
import os
import re
import signal
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

CHUNK = 16
FLUSH_MS = 50
STATISTICS_MS = 500
END_TIMEOUT_S = 60
REST_S = 1.0
"""Pause between two readings of the topic."""
STALL_S = 60.0
"""Time without a record after which a reading of the topic reports what it waits for."""
QUIET_CODES = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE}
COMMON: dict[str, object] = {
    "socket.timeout.ms": 5000,
    "socket.connection.setup.timeout.ms": 2000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 3000,
    "log_level": 0,
}
if "CHAOS_USER" in os.environ:
    COMMON |= {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": os.environ["CHAOS_USER"],
        "sasl.password": os.environ["CHAOS_PASSWORD"],
        "ssl.ca.location": os.environ["CHAOS_AUTHORITY"],
    }


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def report(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Commands:
    """Standard input: "finish" requests a clean end. When it closes, the run has ended and this program exits."""

    def __init__(self) -> None:
        self.finish = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            if line.strip() == "finish":
                self.finish.set()
        os._exit(3)


@dataclass
class AdjacentRecords:
    """Adjacent records that are not reported yet; when polled, of one producer and epoch."""

    time_ms: int
    offset: int
    length: int
    sequence: int
    origin: tuple[int, int]

    def takes(self, offset: int, sequence: int, origin: tuple[int, int]) -> bool:
        ends = self.offset + self.length, self.sequence + self.length
        return offset >= 0 and (offset, sequence) == ends and origin == self.origin


@dataclass
class AdjacentRecordsByPartition:
    """Runs of adjacent records per partition, reported with a short delay."""

    verb: str
    open: dict[int, AdjacentRecords] = field(default_factory=dict)
    reported_ms: int = field(default_factory=now_ms)

    def add(self, partition: int, offset: int, sequence: int, producer: int = -1, epoch: int = -1) -> None:
        run, origin = self.open.get(partition), (producer, epoch)
        if run and run.takes(offset, sequence, origin):
            run.length += 1
            return
        self._report(partition)
        self.open[partition] = AdjacentRecords(now_ms(), offset, 1, sequence, origin)

    def _report(self, partition: int) -> None:
        run = self.open.pop(partition, None)
        if run is None:
            return
        producer, epoch = run.origin
        start = f"{self.verb} {run.time_ms} {partition} {run.offset} {run.length}"
        report(f"{start} {run.sequence}" if self.verb == "acked" else f"{start} {producer} {run.sequence} {epoch}")

    def report_all(self) -> None:
        for partition in list(self.open):
            self._report(partition)
        self.reported_ms = now_ms()

    def report_due(self) -> None:
        if now_ms() - self.reported_ms >= FLUSH_MS:
            self.report_all()


class Writer:
    """A producer of numbered records at a steady rate, in turn to each partition."""

    def __init__(self, arguments: Namespace) -> None:
        self.arguments = arguments
        self.orders = Commands()
        self.runs = AdjacentRecordsByPartition("acked")
        self.sequences = [0] * arguments.partitions
        self.settled = [0] * arguments.partitions  # the next sequence number whose outcome is unknown
        self.settled_before = list(self.settled)  # at the last statistics
        self.epoch: tuple[int, int] | None = None  # producer id and epoch
        acks = {"enable.idempotence": True} if arguments.acks == "all" else {"acks": arguments.acks, "retries": 0}
        self.producer = Producer(
            {
                **COMMON,
                **acks,
                "bootstrap.servers": arguments.bootstrap,
                "request.timeout.ms": 5000,
                "delivery.timeout.ms": 120_000,
                "retry.backoff.ms": 50,
                "linger.ms": 10,
                "error_cb": self._on_error,
                "statistics.interval.ms": STATISTICS_MS,
                "stats_cb": self._on_statistics,
            }
        )
        self.fatal = False

    def _on_error(self, error: KafkaError) -> None:
        self.fatal = self.fatal or error.fatal()
        if error.fatal() or error.code() not in QUIET_CODES:
            report(f"note {now_ms()} {error}")

    def _on_statistics(self, text: str) -> None:
        """Report the records that were sent before librdkafka took another epoch and had no outcome at the statistics
        before, at most `STATISTICS_MS` earlier.

        After OUT_OF_ORDER_SEQUENCE_NUMBER for a batch behind one that failed, librdkafka takes a new epoch and sends
        all unacknowledged records in it, also those of batches whose responses were lost.
        """
        state = json.loads(text).get("eos", {})
        epoch = state.get("producer_id", -1), state.get("producer_epoch", -1)
        if min(epoch) >= 0:
            if self.epoch not in (None, epoch):
                for partition, first in enumerate(self.settled_before):
                    report(f"renumbered {now_ms()} {partition} {self.sequences[partition] - first} {first}")
                report(f"note {now_ms()} producer {epoch[0]} continues with epoch {epoch[1]}")
            self.epoch = epoch
            self.settled_before = list(self.settled)

    def _on_delivery(self, sequence: int, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        self.settled[partition] = sequence + 1
        if error is None:
            self.runs.add(partition, message.offset() if message.offset() is not None else -1, sequence)
        else:
            report(f"failed {now_ms()} {partition} 1 {sequence} {error.name()}")

    def write(self) -> int:
        budget, before, partition = 0.0, time.monotonic(), 0
        while not self.orders.finish.is_set() and not self.fatal:
            now = time.monotonic()
            budget = min(budget + (now - before) * self.arguments.rate, self.arguments.rate)
            before = now
            while budget >= CHUNK and self._send_some(partition):
                budget -= CHUNK
                partition = (partition + 1) % self.arguments.partitions
            self.producer.poll(0.01)
            self.runs.report_due()
        left = self.producer.flush(150)
        self.runs.report_all()
        if self.fatal or left:
            report(f"note {now_ms()} {'fatal error' if self.fatal else 'still unsent'}: {left} records in the queue")
        return 1 if self.fatal or left else 0

    def _send_some(self, partition: int) -> bool:
        """Send some records. Return False if the queue was full and records are left."""
        for _ in range(CHUNK):
            sequence = self.sequences[partition]
            value = b"%d %d %d " % (self.arguments.producer, partition, sequence)
            try:
                self.producer.produce(
                    self.arguments.topic,
                    value.ljust(self.arguments.size, b"."),
                    partition=partition,
                    on_delivery=lambda error, message, sequence=sequence: self._on_delivery(sequence, error, message),
                )
            except BufferError:
                return False
            self.sequences[partition] += 1
        return True


class Reader:
    """A consumer of all partitions from the beginning, without a group, that reports truncations."""

    def __init__(self, arguments: Namespace) -> None:
        self.arguments = arguments
        self.orders = Commands()
        self.runs = AdjacentRecordsByPartition("polled")
        self.positions = [0] * arguments.partitions
        self.moved = time.monotonic()
        self.statistics = "{}"
        self.consumer = self._consumer("read_uncommitted")

    def _consumer(self, isolation: str) -> Consumer:
        return Consumer(
            {
                **COMMON,
                "bootstrap.servers": self.arguments.bootstrap,
                "group.id": "chaos",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
                "retry.backoff.ms": 50,
                "queued.max.messages.kbytes": 16384,
                "statistics.interval.ms": STATISTICS_MS,
                "stats_cb": self._on_statistics,
            }
        )

    def _on_statistics(self, text: str) -> None:
        self.statistics = text

    def _at(self, partition: int, offset: int) -> TopicPartition:
        return TopicPartition(self.arguments.topic, partition, offset)

    def poll_until_finish(self) -> int:
        self.consumer.assign([self._at(partition, 0) for partition in range(self.arguments.partitions)])
        while not self.orders.finish.is_set():
            self._poll()
        self.runs.report_all()
        return 0

    def read_all(self) -> int:
        """Read everything up to the current log end offsets."""
        partitions = range(self.arguments.partitions)
        bounds = [self._bounds(partition) for partition in partitions]
        self.positions = [low for low, _ in bounds]
        for partition, low in enumerate(self.positions):
            report(f"began {now_ms()} {partition} {low}")
        self.consumer.assign([self._at(partition, self.positions[partition]) for partition in partitions])
        self.moved = time.monotonic()
        while missing := [partition for partition in partitions if self.positions[partition] < bounds[partition][1]]:
            self._poll()
            if time.monotonic() - self.moved > STALL_S:
                self._report_stall({partition: bounds[partition][1] for partition in missing})
                self.moved = time.monotonic()
        self.runs.report_all()
        for partition, position in enumerate(self.positions):
            report(f"ended {now_ms()} {partition} {position}")
        return 0

    def read_repeatedly(self) -> int:
        """Read repeatedly with a new consumer per pass, read_committed every other time."""
        isolation, other = "read_committed", "read_uncommitted"
        while not self.orders.finish.wait(REST_S):
            self.read_all()
            self.consumer.close()
            self.consumer = self._consumer(isolation)
            isolation, other = other, isolation
        return 0

    def _report_stall(self, bounds: dict[int, int]) -> None:
        """Report the state of unread partitions in librdkafka, and what another consumer reads at their positions."""
        state = json.loads(self.statistics)
        partitions = state.get("topics", {}).get(self.arguments.topic, {}).get("partitions", {})
        for partition, bound in bounds.items():
            mine, position = partitions.get(str(partition), {}), self.positions[partition]
            report(f"note {now_ms()} partition {partition} makes no progress: at {position} of {bound}")
            report(f"note {now_ms()} state of the partition: {json.dumps(mine)}")
            report(f"note {now_ms()} state of the leader: {json.dumps(_broker(state, mine.get('leader', -1)))}")
            other = self._consumer("read_uncommitted")
            other.assign([self._at(partition, position)])
            found = other.consume(1, 20)
            seen = "nothing" if not found else found[0].error() or f"offset {found[0].offset()}"
            report(f"note {now_ms()} another consumer reads {seen}")
            other.close()

    def _bounds(self, partition: int) -> tuple[int, int]:
        """Return log start and end offsets. A new leader does not know them at once."""
        deadline = time.monotonic() + END_TIMEOUT_S
        while True:
            try:
                low, high = self.consumer.get_watermark_offsets(self._at(partition, 0), timeout=5)
            except KafkaException as error:
                if time.monotonic() > deadline:
                    raise
                report(f"note {now_ms()} no bounds of partition {partition} yet: {error}")
                if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                    self._report_metadata()
                time.sleep(0.5)
            else:
                return int(low), int(high)

    def _report_metadata(self) -> None:
        try:
            found = self.consumer.list_topics(self.arguments.topic, 5)
        except KafkaException as error:
            report(f"note {now_ms()} no metadata: {error}")
        else:
            topic = found.topics[self.arguments.topic]
            partitions = {index: (each.leader, str(each.error)) for index, each in sorted(topic.partitions.items())}
            report(f"note {now_ms()} broker {found.orig_broker_id} has {partitions} {topic.error or ''}")

    def _poll(self) -> None:
        for message in self.consumer.consume(500, 0.05):
            if message.error() is None:
                self._on_record(message)
            else:
                self._on_error(message)
        self.runs.report_due()

    def _on_record(self, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        self.positions[partition] = offset + 1
        self.moved = time.monotonic()
        fields = (message.value() or b"").split(b" ", 3)
        is_whole = len(fields) == 4 and not fields[3].strip(b".")
        if not is_whole or fields[1] != b"%d" % partition or not (fields[0] + fields[2]).isdigit():
            report(f"strange {now_ms()} {partition} {offset} a value of {len(message)} bytes")
            return
        epoch = message.leader_epoch()
        self.runs.add(partition, offset, int(fields[2]), int(fields[0]), -1 if epoch is None else epoch)

    def _on_error(self, message: Message) -> None:
        """Handle an error. The reset policy is "error", so that the event is reported before the position changes."""
        error, partition = message.error(), message.partition()
        if error.code() not in QUIET_CODES | {KafkaError._AUTO_OFFSET_RESET}:
            report(f"note {now_ms()} partition {partition} at {self.positions[partition]}: {error}")
        diverged = re.search(r"broker end offset is (\d+)", error.str())
        if diverged:
            self._resume(partition, min(self.positions[partition], int(diverged[1])))
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._reset_position(partition, message.offset())

    def _reset_position(self, partition: int, refused: int | None) -> None:
        """Find the position after an error: the log was truncated below it or now starts after it. An error about a
        position that was already left may arrive late."""
        position, (low, high) = self.positions[partition], self._bounds(partition)
        report(f"note {now_ms()} partition {partition}: {refused} was refused, and the log goes from {low} to {high}")
        if position >= low:
            if refused is not None and 0 <= refused < low:
                self._advance(partition, position)
            else:
                self._resume(partition, min(position, high))
            return
        self.runs.report_all()
        report(f"began {now_ms()} {partition} {low}")
        self._advance(partition, low)

    def _resume(self, partition: int, offset: int) -> None:
        self.runs.report_all()
        report(f"truncated {now_ms()} {partition} {self.positions[partition]} {offset}")
        self._advance(partition, offset)

    def _advance(self, partition: int, offset: int) -> None:
        self.positions[partition] = offset
        self.consumer.incremental_unassign([self._at(partition, offset)])
        self.consumer.incremental_assign([self._at(partition, offset)])


def _broker(statistics: dict[str, dict[str, dict[str, object]]], node: int) -> dict[str, object]:
    """Return the connection state of a broker by its id."""
    names = ("name", "state", "stateage", "outbuf_cnt", "waitresp_cnt", "tx", "rx", "rxerrs", "req_timeouts")
    found = next((each for each in statistics.get("brokers", {}).values() if each.get("nodeid") == node), {})
    return {name: found[name] for name in names if name in found}


def main() -> int:
    faulthandler.register(signal.SIGQUIT)
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("produce", "consume", "read", "reread"))
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("partitions", type=int)
    parser.add_argument("producer", type=int, nargs="?")
    parser.add_argument("rate", type=int, nargs="?")
    parser.add_argument("size", type=int, nargs="?")
    parser.add_argument("acks", nargs="?")
    arguments = parser.parse_args()
    if arguments.role == "produce":
        return Writer(arguments).write()
    reader = Reader(arguments)
    try:
        match arguments.role:
            case "read":
                return reader.read_all()
            case "reread":
                return reader.read_repeatedly()
            case _:
                return reader.poll_until_finish()
    except KafkaException as error:
        report(f"note {now_ms()} {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
