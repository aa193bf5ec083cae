"""A Kafka Streams word count, with a state store and a repartition topic, while its instances and nodes are killed.

Three nodes; instances of the application count the words of lines. Every few seconds an instance, and with --nodes also
a node, is killed with -9 and started again. Afterwards the last count of each word must be the number of its
occurrences in the input, or more with at_least_once. With exactly_once_v2 no count may be written twice. The exit code
is 0 only then.
"""

import argparse
import random
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.clients.replicated_load import create_topic
from tests.support.kafka.apache_kafka import JARS, REPOSITORY, unavailable_reason
from tests.support.processes.ottla_cluster import OttlaCluster

SOURCES = Path(__file__).parent / "clients"
BUILD = REPOSITORY / "build" / "exactly-once"
STREAMS_JARS = BUILD / "streams-jars"
SOURCE, TARGET, APPLICATION = "lines", "counts", "word-count"
PARTITIONS = 4
WORDS, WORDS_IN_A_LINE = 200, 5
FIRST_KILL_S, PAUSE_S, END_S, STALLED_S = 12.0, 12.0, 5.0, 180.0
SETTINGS = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "ottla.coordinator.snapshot.interval.ms": "500",
    "ottla.coordinator.snapshot.min.new.records": "50",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.heartbeat.interval.ms": "1000",
    "group.streams.min.heartbeat.interval.ms": "1000",
}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.exactly_once.word_count", description=__doc__)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--protocol", choices=("classic", "streams"), default="streams", help="of the group")
    parser.add_argument("--guarantee", choices=("exactly_once_v2", "at_least_once"), default="exactly_once_v2")
    parser.add_argument("--standby", type=int, default=0, help="copies of each store, with the protocol streams")
    parser.add_argument("--nodes", action="store_true", help="kill a node with each instance")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--directory", type=Path, default=BUILD / "word-count", help="emptied first")
    return parser.parse_args()


def unavailable_streams_reason() -> str | None:
    """Return the reason for which the application cannot run here, None once it is compiled."""
    if (reason := unavailable_reason()) is not None:
        return reason
    STREAMS_JARS.mkdir(parents=True, exist_ok=True)
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(SOURCES / "pom.xml"), "dependency:copy-dependencies"]
    for step in (
        [*command, f"-DoutputDirectory={STREAMS_JARS}"],
        ["javac", "-cp", f"{STREAMS_JARS}/*", "-d", str(STREAMS_JARS), str(SOURCES / "WordCount.java")],
    ):
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"{step[0]} failed: {(done.stdout + done.stderr).strip()[-500:]}"
    return None


class Application:
    """The instances of the word count. Each keeps its state directory over kills."""

    def __init__(self, bootstrap: str, arguments: argparse.Namespace, session_timeout_ms: int = 6_000) -> None:
        """`session_timeout_ms` is for members of a classic group."""
        self._bootstrap = bootstrap
        self._session_timeout_ms = session_timeout_ms
        self._arguments = arguments
        self._running = {number: self._start(number) for number in range(arguments.instances)}

    def kill(self, number: int) -> None:
        """Kill the instance with -9, and start it again."""
        self._running[number].kill()
        self._running[number].wait()
        self._running[number] = self._start(number)

    def stop(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        state = self._arguments.directory / f"state-{number}"
        with (self._arguments.directory / f"instance-{number}.log").open("ab") as log:
            return subprocess.Popen(
                [
                    *("java", "-Xmx192m", "-cp", f"{STREAMS_JARS}:{STREAMS_JARS}/*:{JARS}/*", "WordCount"),
                    *(self._bootstrap, APPLICATION, str(state), self._arguments.protocol, self._arguments.guarantee),
                    *("2", SOURCE, TARGET, str(self._session_timeout_ms)),
                ],
                stdout=log,
                stderr=log,
            )


def write_lines(cluster: OttlaCluster, application: Application, arguments: argparse.Namespace) -> Counter[str]:
    """Write the lines at an even rate while instances and nodes are killed. Return the words written."""
    chance = random.Random(arguments.seed)
    expected: Counter[str] = Counter()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 20})
    seconds = FIRST_KILL_S + PAUSE_S * arguments.kills + END_S
    begun = time.monotonic()
    sent = kills = 0
    while sent < arguments.lines or kills < arguments.kills:
        elapsed = time.monotonic() - begun
        due = min(arguments.lines, int(arguments.lines * elapsed / seconds) + 1)
        while sent < due:
            words = [f"word-{chance.randrange(WORDS)}" for _ in range(WORDS_IN_A_LINE)]
            expected.update(words)
            producer.produce(SOURCE, " ".join(words), key=str(sent))
            sent += 1
        producer.poll(0.05)
        if kills < arguments.kills and elapsed > FIRST_KILL_S + PAUSE_S * kills:
            number = chance.randrange(arguments.instances)
            application.kill(number)
            if arguments.nodes:
                cluster.kill(kills % cluster.nodes)
            node = f" and node {kills % cluster.nodes + 1}" if arguments.nodes else ""
            kills += 1
            print(f"{elapsed:4.0f} s, {sent} lines: killed instance {number}{node}", flush=True)
    assert producer.flush(STALLED_S) == 0, "not all lines were acknowledged"
    return expected


def wrong_words(counts: Mapping[str, list[int]], expected: Counter[str], *, is_exact: bool) -> list[str]:
    """Return the words whose last count is wrong; only an exact count may not be too large."""
    last = {word: (counts.get(word) or [0])[-1] for word in expected}
    return [word for word, number in expected.items() if last[word] < number or (is_exact and last[word] > number)]


def read_counts(cluster: OttlaCluster, expected: Counter[str], *, is_exact: bool) -> Mapping[str, list[int]]:
    """Return the committed counts of each word, once the last ones are as expected, or when none has come for long."""
    settings = {"group.id": "reader", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "earliest", **settings})
    consumer.assign([TopicPartition(TARGET, partition, 0) for partition in range(PARTITIONS)])
    counts: defaultdict[str, list[int]] = defaultdict(list)
    progress = time.monotonic()
    while time.monotonic() < progress + STALLED_S and wrong_words(counts, expected, is_exact=is_exact):
        for message in consumer.consume(1_000, 0.5):
            if message.error() is None:
                counts[message.key().decode()].append(int(message.value()))
                progress = time.monotonic()
    consumer.close()
    return counts


def main() -> int:
    arguments = parsed()
    if (reason := unavailable_streams_reason()) is not None:
        print(f"the application cannot run on this machine: {reason}")
        return 2
    shutil.rmtree(arguments.directory, ignore_errors=True)
    arguments.directory.mkdir(parents=True)
    print(f"seed {arguments.seed}, {arguments.protocol}, {arguments.guarantee}, {arguments.lines} lines", flush=True)
    begun, is_exact = time.monotonic(), arguments.guarantee == "exactly_once_v2"
    settings = {**SETTINGS, "group.streams.num.standby.replicas": str(arguments.standby)}
    with OttlaCluster(arguments.directory, settings=settings) as cluster:
        for topic in (SOURCE, TARGET):
            create_topic(cluster.bootstrap, topic, PARTITIONS)
        application = Application(cluster.bootstrap, arguments)
        try:
            expected = write_lines(cluster, application, arguments)
            counts = read_counts(cluster, expected, is_exact=is_exact)
        finally:
            application.stop()
    wrong = wrong_words(counts, expected, is_exact=is_exact)
    repeated = sum(len(each) - len(set(each)) for each in counts.values())
    print(
        f"{time.monotonic() - begun:.0f} s: {expected.total()} words, {len(wrong)} of {len(expected)} counts wrong,"
        f" {sum(map(len, counts.values()))} counts written, {repeated} of them twice",
        flush=True,
    )
    return 1 if wrong or (repeated and is_exact) else 0


if __name__ == "__main__":
    sys.exit(main())
