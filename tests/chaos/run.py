"""One chaos run: the clients at work, faults in between, and then the reckoning."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.availability import Availability
from tests.chaos.checker import Checker, Findings, Rules
from tests.chaos.events import Acked, Ended, Event, Failed, Note, Polled, Strange, Truncated
from tests.chaos.faults import Faults
from tests.chaos.network import Network
from tests.chaos.nodes import ChaosCluster, partition_directories, topic_settings
from tests.chaos.programs import Client, Program
from tests.chaos.replicas import difference, wait_equal_sizes

TOPIC = "chaos"
# After the last fault the producers go on for a while, so that every partition ends in its last epoch.
AFTERMATH_S = 8.0
FLUSH_TIMEOUT_S = 180.0
READ_TIMEOUT_S = 300.0
# How long consumers may go without progress before what they have not seen counts as unseen.
STALL_S = 45.0
NOTES_MAX = 20


class RunFailed(Exception):
    """The run could not be carried through, whatever the checker says."""


@dataclass(frozen=True)
class Load:
    """What is written: `rate` records a second of `size` bytes by each producer."""

    clients: Sequence[Client]
    partitions: int
    rate: int
    size: int
    acks: str
    unclean: bool
    rules: Rules


@dataclass
class Outcome:
    """All that a report tells of."""

    findings: Findings
    availability: Availability
    faults: Faults
    by_client: list[Availability]  # each as if there were no others
    errors: list[str] = field(default_factory=list)
    ended_ms: int = 0
    records: int = 0


class Run:
    """The clients of one run; `carry_out` once."""

    def __init__(self, cluster: ChaosCluster, network: Network, load: Load, faults: Faults) -> None:
        self._cluster = cluster
        self._network = network
        self._load = load
        self._lock = threading.Lock()
        self._checker = Checker(load.partitions, len(load.clients), len(load.clients), load.rules)
        self._notes = 0
        self._started: set[int] = set()
        self._programs: list[Program] = []
        self.outcome = Outcome(self._checker.findings, self._availability(), faults, [])

    def carry_out(self, seconds: float) -> Outcome:
        """Raises RunFailed where there is nothing to judge."""
        self._create_topic()
        try:
            consumers = [self._start_consumer(number) for number in range(len(self._load.clients))]
            producers = [self._start_producer(number) for number in range(len(self._load.clients))]
            self._wait_for_first_acks()
            with self._lock:
                self.outcome.availability = self._availability()
                self.outcome.by_client = [self._availability() for _ in self._load.clients]
            self.outcome.faults.run(time.monotonic() + seconds)
            self._settle(producers)
            self._read_all()
            self._drain(consumers)
        finally:
            for program in self._programs:
                program.kill()
        self._finish(producers, consumers)
        return self.outcome

    def _availability(self) -> Availability:
        return Availability(self._load.partitions, _now_ms())

    # Beginning

    def _create_topic(self) -> None:
        load = self._load
        settings = topic_settings(acks=load.acks, unclean=load.unclean)
        replicas = len(self._cluster.nodes)
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, "log_level": 0})
        asked = admin.create_topics([NewTopic(TOPIC, load.partitions, replicas, config=dict(settings))])
        try:
            asked[TOPIC].result()
        except Exception as error:
            raise RunFailed(f"no topic with replication factor {replicas}: {error}") from error

    def _start_producer(self, number: int) -> Program:
        load = self._load
        own = [str(number), str(load.rate), str(load.size), load.acks]
        return self._launch(number, "produce", own, lambda event: self._on_producer(number, event))

    def _start_consumer(self, number: int) -> Program:
        return self._launch(number, "consume", [], lambda event: self._on_consumer(number, event))

    def _launch(self, number: int, role: str, own: Sequence[str], heard: Callable[[Event], None]) -> Program:
        client = self._load.clients[number]
        arguments = [role, self._cluster.bootstrap, TOPIC, str(self._load.partitions), *own]
        log = self._cluster.directory / f"{client}-{role}.log"
        program = Program(self._network, client, arguments, log, self._lock, heard)
        self._programs.append(program)
        return program

    def _wait_for_first_acks(self) -> None:
        """Compilers of clients take their time; faults and the clock of availability wait for them."""
        deadline = time.monotonic() + 60
        while len(self._started) < len(self._load.clients):
            if time.monotonic() > deadline:
                raise RunFailed("not every producer had a record acknowledged within a minute")
            time.sleep(0.1)

    # Events; the programs' threads call these under the lock

    def _on_producer(self, number: int, event: Event) -> None:
        match event:
            case Acked():
                self._started.add(number)
                self._checker.acked(number, event)
                self.outcome.availability.acked(event.partition, event.time_ms)
                for each in self.outcome.by_client[number : number + 1]:
                    each.acked(event.partition, event.time_ms)
            case Failed():
                self._checker.failed(number, event)
            case _:
                self._on_other(f"{self._load.clients[number]} producer", event)

    def _on_consumer(self, number: int, event: Event) -> None:
        match event:
            case Polled():
                self._checker.polled(number, event)
            case Truncated():
                self._checker.truncated(number, event)
            case _:
                self._on_other(f"{self._load.clients[number]} consumer", event)

    def _on_reader(self, event: Event) -> None:
        if isinstance(event, Polled | Ended):
            self._checker.final(event)
        else:
            self._on_other("last reader", event)

    def _on_other(self, who: str, event: Event) -> None:
        if isinstance(event, Strange):
            self._checker.strange(event)
        elif isinstance(event, Note):
            self._notes += 1
            if self._notes <= NOTES_MAX:
                print(f"     {who}: {event.text[:200]}", flush=True)
        else:
            self.outcome.errors.append(f"the {who} told {event}")

    # End

    def _settle(self, producers: Sequence[Program]) -> None:
        """Everything whole again, some more records, and then no more."""
        self._cluster.wait_ready()
        time.sleep(AFTERMATH_S)
        self.outcome.ended_ms = _now_ms()
        with self._lock:
            for each in (self.outcome.availability, *self.outcome.by_client):
                each.end(self.outcome.ended_ms)
        for producer in producers:
            producer.ask_to_finish()
        for producer in producers:
            producer.wait_finished(FLUSH_TIMEOUT_S)

    def _read_all(self) -> None:
        client = Client.LIBRDKAFKA
        arguments = ["read", self._cluster.bootstrap, TOPIC, str(self._load.partitions)]
        log = self._cluster.directory / "last-reader.log"
        reader = Program(self._network, client, arguments, log, self._lock, self._on_reader)
        self._programs.append(reader)
        reader.wait_finished(READ_TIMEOUT_S)

    def _drain(self, consumers: Sequence[Program]) -> None:
        """Until every consumer is at the end, or gets no further."""
        before, moved = self._lag(), time.monotonic()
        while before and time.monotonic() - moved < STALL_S:
            time.sleep(0.2)
            lag = self._lag()
            if lag != before:
                before, moved = lag, time.monotonic()
        for consumer in consumers:
            consumer.ask_to_finish()
        for consumer in consumers:
            consumer.wait_finished(30)

    def _lag(self) -> int:
        with self._lock:
            return self._checker.lag()

    def _finish(self, producers: Sequence[Program], consumers: Sequence[Program]) -> None:
        outcome = self.outcome
        outcome.errors += [f"{each.title} {each.error}" for each in self._programs if each.error is not None]
        all_sent = all(producer.error is None for producer in producers)
        outcome.findings = self._checker.verdict(all_sent=all_sent)
        outcome.records = self._checker.records
        nodes, partitions = self._cluster.nodes, range(self._load.partitions)
        replicas = [partition_directories(nodes, TOPIC, partition) for partition in partitions]
        wait_equal_sizes(replicas)
        self._cluster.kill()
        outcome.errors += [found for found in map(difference, replicas) if found is not None]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
