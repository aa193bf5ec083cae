"""Scenarios of a follower: its requests, the responses of leaders, and changes of its logs.

Each line of output starts with the time in milliseconds since the command.

Broker 9 follows. A message takes 1 ms. A log is given as runs of `epoch:records`; `4:0` is an epoch without records.

    leader 1 [sessions=0]           add a reachable leader; sessions: its fetch session slots
    lead 1 t-0 1:3 2:2              lead with this log, in its last epoch
    write 1 t-0 3                   commit 1 t-0 3          trim 1 t-0 2        (raise its log start offset)
    log t-0 1:3                     give the replica this log
    follow t-0 leader=1 epoch=2     unfollow t-0
    advance 500                     let time pass; `quiet` after any command suppresses its output
    refuse 1 t-0 CODE …             the errors of the next responses for a partition
    refuse-all 1 CODE …             the top-level errors of the next responses
    diverge 1 t-0 1:4               respond once that epoch 1 ends at 4
    stale 1 t-0                     respond once with records below the fetch offset
    at-once 1 2                     limit the records per response
    down 1                          up 1                    move 1              (another port)
    fault t-0 storage|corrupt|order     fail the next append or truncation
    slow-cuts t-0 50                set the duration of truncations in ms
    segment t-0 3-5 0@0 1@3 2@5     add a remote segment of a log with these epochs (epoch@first offset)
    remote 1 t-0 6                  set a leader's local log start offset; records below are remote only
    expired t-0 6                   set the replica's local log start offset
    pending 1 t-0 8                 set the leader's earliest pending upload offset (-1: unknown)
    tier loading|ready|skips|slow=50|fails
                                    remote metadata not loaded; loaded; empty replicas skip remote records (KIP-1023);
                                    set the duration of lookups in ms; fail the next lookup
    config KEY VALUE [topic=t]      set a dynamic config of all brokers or a topic
    status                          show the fetch state and log of each replica
    connections                     show the open connections
"""

from collections.abc import Callable, Mapping

from broker.metadata.image.config_image import ResourceType
from broker.replication.epochs import EpochEnd
from broker.runtime.partitions.hosted_follower import FetchedOutOfOrder
from broker.runtime.replication.remote_log_aux_state import RemoteLogUnavailable
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from tests.scenarios.transcript import Command, Named, Scenario, Words
from tests.support.harnesses.fetch_harness import Entry, FollowerHarness, encode, fill

FAULTS: Mapping[str, Callable[[], Exception]] = {
    "storage": lambda: KafkaError(ErrorCode.KAFKA_STORAGE_ERROR),
    "corrupt": lambda: KafkaError(ErrorCode.CORRUPT_MESSAGE),
    "order": lambda: FetchedOutOfOrder("records do not follow"),
}


class ReplicationScenario(Scenario):
    """Interpreter of the commands above."""

    def __init__(self) -> None:
        super().__init__()
        self.begun_at = 0.0
        self.harness = FollowerHarness(self.say)
        self.commands: Mapping[str, Command] = {
            "leader": lambda words, named: self.harness.leader(
                int(words[0]), session_slots=int(named.get("sessions", "100"))
            ),
            "lead": self.lead,
            "write": lambda words, _: self.harness.write(int(words[0]), words[1], int(words[2])),
            "commit": self.commit,
            "trim": self.trim,
            "log": lambda words, _: fill(self.harness.replica(words[0]).log, map(_run, words[1:])),
            "follow": lambda words, named: [
                self.harness.follow(word, int(named["leader"]), int(named["epoch"])) for word in words
            ],
            "unfollow": lambda words, _: self.harness.unfollow(words[0]),
            "advance": lambda words, _: self.harness.advance(float(words[0])),
            "refuse": lambda words, _: self.harness.led(int(words[0]), words[1]).refusals.extend(
                ErrorCode[word] for word in words[2:]
            ),
            "refuse-all": lambda words, _: self.harness.leaders[int(words[0])].top_level_errors.extend(
                ErrorCode[word] for word in words[1:]
            ),
            "diverge": lambda words, _: self.harness.led(int(words[0]), words[1]).diverging_ends.append(
                _epoch_end(words[2])
            ),
            "stale": self.stale,
            "at-once": lambda words, _: setattr(
                self.harness.leaders[int(words[0])], "response_max_records", int(words[1])
            ),
            "down": lambda words, _: self.harness.transport.down.add(self.harness.leaders[int(words[0])].endpoint),
            "up": lambda _words, _: self.harness.transport.down.clear(),
            "move": lambda words, _: self.harness.move(int(words[0])),
            "fault": lambda words, _: setattr(self.harness.replica(words[0]), "fault", FAULTS[words[1]]()),
            "slow-cuts": lambda words, _: setattr(
                self.harness.replica(words[0]), "truncation_s", float(words[1]) / 1000
            ),
            "segment": self.segment,
            "remote": lambda words, _: self.harness.led(int(words[0]), words[1]).log.leave_to_tier(int(words[2])),
            "expired": lambda words, _: self.harness.replica(words[0]).log.leave_to_tier(int(words[1])),
            "pending": lambda words, _: setattr(
                self.harness.led(int(words[0]), words[1]), "pending_upload", int(words[2])
            ),
            "tier": self.tier,
            "config": self.configure,
            "status": self.status,
            "connections": self.connections,
        }

    def before_command(self) -> None:
        self.begun_at = self.harness.loop.time()

    def after_command(self, name: str) -> None:
        if name != "advance":
            self.harness.advance(0)

    def say(self, line: str) -> None:
        """Show an event with its time."""
        self.show(f"{(self.harness.loop.time() - self.begun_at) * 1000:>5.0f} {line}")

    # Leaders

    def lead(self, words: Words, _named: Named) -> None:
        *runs, (epoch, record_count) = map(_run, words[2:])
        led = self.harness.lead(int(words[0]), words[1], epoch)
        led.log.epochs.clear()
        fill(led.log, [*runs, (epoch, record_count)])

    def commit(self, words: Words, _named: Named) -> None:
        leader = self.harness.leaders[int(words[0])]
        self.harness.led(int(words[0]), words[1]).log.high_watermark = int(words[2])
        leader.look_again()

    def trim(self, words: Words, _named: Named) -> None:
        self.harness.led(int(words[0]), words[1]).log.trim(int(words[2]))

    def stale(self, words: Words, _named: Named) -> None:
        self.harness.led(int(words[0]), words[1]).stale_records.append(encode([Entry(0, 1)]))
        self.harness.leaders[int(words[0])].look_again()

    def configure(self, words: Words, named: Named) -> None:
        kind = ResourceType.TOPIC if "topic" in named else ResourceType.BROKER
        self.harness.configure(kind, named.get("topic", ""), words[0], words[1])

    # Remote storage

    def segment(self, words: Words, _named: Named) -> None:
        topic, _, index = words[0].rpartition("-")
        first, _, last = words[1].partition("-")
        epochs = [
            (LeaderEpoch(int(epoch)), int(begin)) for epoch, _, begin in (word.partition("@") for word in words[2:])
        ]
        self.harness.tier.add(topic, int(index), int(first), int(last), epochs)

    def tier(self, words: Words, named: Named) -> None:
        tier = self.harness.tier
        tier.takes_s = float(named.get("slow", tier.takes_s * 1000)) / 1000
        for word in words:
            match word:
                case "loading" | "ready":
                    tier.is_ready = word == "ready"
                case "skips":
                    tier.skips_remote = True
                case "fails":
                    tier.troubles.append(RemoteLogUnavailable("the store does not respond"))

    # Output

    def status(self, _words: Words, _named: Named) -> None:
        for name, replica in sorted(self.harness.replicas.items()):
            phase = self.harness.phase(name)
            self.show(f"{name} {'not fetched' if phase is None else phase.value}, log {replica.log.describe()}")

    def connections(self, _words: Words, _named: Named) -> None:
        for connection in self.harness.transport.connections:
            if not connection.is_closed:
                self.show(f"{connection.client_id} to {connection.endpoint.host}:{connection.endpoint.port}")


def _epoch_end(word: str) -> EpochEnd:
    epoch, end_offset = _run(word)
    return EpochEnd(LeaderEpoch(epoch), end_offset)


def _run(word: str) -> tuple[int, int]:
    epoch, _, record_count = word.partition(":")
    return int(epoch), int(record_count)
