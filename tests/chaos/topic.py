"""One topic of a chaos run: its client programs and the checker of their events."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.availability import Availability
from tests.chaos.checker import Checker, Findings, Rules
from tests.chaos.events import Acked, Began, Ended, Event, Failed, Note, Polled, Renumbered, Strange, Truncated
from tests.chaos.network import Network
from tests.chaos.nodes import ChaosCluster, topic_settings
from tests.chaos.programs import Program
from tests.support.processes.client_programs import ClientLibrary

FIRST_ACK_S = 180.0
FLUSH_TIMEOUT_S = 180.0
READ_TIMEOUT_S = 300.0
# Consumers may make no progress for this long before records they miss count as unseen.
STALL_S = 45.0
NOTES_MAX = 20


class RunFailed(Exception):
    """The run could not be completed, whatever the checker found."""


@dataclass(frozen=True)
class Load:
    """Load of a topic: each producer sends `rate` records per second of `size` bytes.

    Each client has a producer and a consumer. With `reread`, librdkafka repeatedly reads the topic from its start.
    `settings` are the topic's configs beside those of every topic of a run.
    """

    clients: Sequence[ClientLibrary]
    partitions: int
    rate: int
    size: int
    acks: str
    unclean: bool
    rules: Rules
    topic: str = "chaos"
    settings: Mapping[str, str] = field(default_factory=dict)
    reread: bool = False


@dataclass
class Outcome:
    """Results of a topic for the report."""

    findings: Findings
    availability: Availability
    by_client: list[Availability]  # computed from one client's acknowledgements each
    errors: list[str] = field(default_factory=list)
    ended_ms: int = 0
    records: int = 0


class TopicRun:
    """The clients of one topic. Call the methods in the order of their definition."""

    def __init__(self, cluster: ChaosCluster, network: Network, load: Load) -> None:
        self._cluster = cluster
        self._network = network
        self.load = load
        self._lock = threading.Lock()
        clients = len(load.clients)
        self._checker = Checker(load.partitions, clients, clients, load.rules, rereaders=int(load.reread))
        self._notes = 0
        self._started: set[int] = set()
        self._programs: list[Program] = []
        self._producers: list[Program] = []
        self._consumers: list[Program] = []
        self._rereader: Program | None = None
        self.outcome = Outcome(self._checker.findings, self._availability(), [])

    def _availability(self) -> Availability:
        return Availability(self.load.partitions, now_ms())

    # Start

    def create_topic(self) -> None:
        load = self.load
        settings = {**topic_settings(acks=load.acks, unclean=load.unclean), **load.settings}
        replicas = len(self._cluster.nodes)
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, "log_level": 0})
        asked = admin.create_topics([NewTopic(load.topic, load.partitions, replicas, config=settings)])
        try:
            asked[load.topic].result()
        except Exception as error:
            raise RunFailed(f"cannot create a topic with replication factor {replicas}: {error}") from error

    def start(self) -> None:
        """Start consumers, then producers."""
        load = self.load
        numbers = range(len(load.clients))
        self._consumers = [self._start_consumer(number) for number in numbers]
        if load.reread:
            self._rereader = self._launch(
                ClientLibrary.LIBRDKAFKA, "reread", [], lambda event: self._on_consumer(len(numbers), event)
            )
        self._producers = [self._start_producer(number) for number in numbers]

    def _start_producer(self, number: int) -> Program:
        load = self.load
        own = [str(number), str(load.rate), str(load.size), load.acks]
        return self._launch(load.clients[number], "produce", own, lambda event: self._on_producer(number, event))

    def _start_consumer(self, number: int) -> Program:
        return self._launch(self.load.clients[number], "consume", [], lambda event: self._on_consumer(number, event))

    def _launch(self, client: ClientLibrary, role: str, own: Sequence[str], heard: Callable[[Event], None]) -> Program:
        load = self.load
        arguments = [role, self._cluster.client_bootstrap, load.topic, str(load.partitions), *own]
        log = self._cluster.directory / f"{load.topic}-{client}-{role}.log"
        security = self._cluster.security
        environment = {} if security is None else security.client_environment
        program = Program(self._network, client, arguments, log, self._lock, heard, environment)
        self._programs.append(program)
        return program

    def wait_for_first_acks(self) -> None:
        """Wait until every client is compiled and works; faults and the measurement of availability start then."""
        deadline = time.monotonic() + FIRST_ACK_S
        while len(self._started) < len(self.load.clients):
            if time.monotonic() > deadline:
                raise RunFailed(f"not every producer had a record acknowledged within {FIRST_ACK_S:.0f} s")
            time.sleep(0.1)

    def begin_clock(self) -> None:
        """Start measuring availability: every partition should acknowledge records from now on."""
        with self._lock:
            self.outcome.availability = self._availability()
            self.outcome.by_client = [self._availability() for _ in self.load.clients]

    # Events, which the programs' threads deliver under the lock

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
            case Renumbered():
                self._checker.renumbered(number, event)
            case _:
                self._on_other(f"{self.load.clients[number]} producer", event)

    def _on_consumer(self, number: int, event: Event) -> None:
        match event:
            case Polled():
                self._checker.polled(number, event)
            case Truncated():
                self._checker.truncated(number, event)
            case Began():
                self._checker.began(number, event)
            case Ended():
                self._checker.ended(number, event)
            case _:
                readers = [*self.load.clients, ClientLibrary.LIBRDKAFKA]
                self._on_other(f"{readers[number]} consumer", event)

    def _on_reader(self, event: Event) -> None:
        if isinstance(event, Polled | Began | Ended):
            self._checker.final(event)
        else:
            self._on_other("last reader", event)

    def _on_other(self, who: str, event: Event) -> None:
        if isinstance(event, Strange):
            self._checker.strange(event)
        elif isinstance(event, Note):
            self._notes += 1
            if self._notes <= NOTES_MAX:
                print(f"     {self.load.topic}, {who}: {event.text[:200]}", flush=True)
        else:
            self.outcome.errors.append(f"the {who} of {self.load.topic} sent {event}")

    # End

    def stop_producing(self) -> None:
        """Stop producers after all sent records are acknowledged or given up."""
        self.outcome.ended_ms = now_ms()
        with self._lock:
            for each in (self.outcome.availability, *self.outcome.by_client):
                each.end(self.outcome.ended_ms)
        for producer in self._producers:
            producer.ask_to_finish()
        for producer in self._producers:
            producer.wait_finished(FLUSH_TIMEOUT_S)

    def stop_rereading(self) -> None:
        """Stop the rereader after its current pass."""
        if self._rereader is not None:
            self._rereader.ask_to_finish()
            self._rereader.wait_finished(READ_TIMEOUT_S)

    def read_all(self) -> None:
        """Read the final log from its start."""
        reader = self._launch(ClientLibrary.LIBRDKAFKA, "read", [], self._on_reader)
        reader.wait_finished(READ_TIMEOUT_S)

    def drain(self) -> None:
        """Wait until every consumer is at the end or makes no progress."""
        before, moved = self._lag(), time.monotonic()
        while before and time.monotonic() - moved < STALL_S:
            time.sleep(0.2)
            lag = self._lag()
            if lag != before:
                before, moved = lag, time.monotonic()
        for consumer in self._consumers:
            consumer.ask_to_finish()
        for consumer in self._consumers:
            consumer.wait_finished(30)

    def _lag(self) -> int:
        with self._lock:
            return self._checker.lag()

    def kill(self) -> None:
        for program in self._programs:
            program.kill()

    def judge(self) -> None:
        """Judge once, after all programs have ended."""
        outcome = self.outcome
        outcome.errors += [
            f"{each.title} of {self.load.topic} {each.error}" for each in self._programs if each.error is not None
        ]
        all_sent = all(producer.error is None for producer in self._producers)
        outcome.findings = self._checker.verdict(all_sent=all_sent)
        outcome.records = self._checker.records


def now_ms() -> int:
    """Return the machine's clock, as programs report it."""
    return time.time_ns() // 1_000_000
