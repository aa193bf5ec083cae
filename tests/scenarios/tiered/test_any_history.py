"""Random histories of brokers, including unclean elections, after which all replicas must be equal.

Each seed is one history. Whole logs are compared: the records that consumers read, from any broker, local or remote.
"""

from random import Random

import pytest

from tests.scenarios.tiered.broker import NOW_MS, Broker
from tests.scenarios.tiered.harness import ScenarioCluster

NAMES = ("A", "B", "C")
STEPS = 60
PRODUCERS = 6
"""Number of producers: some of them are idle after a follower has started after the remote offsets."""


class RandomHistory:
    """One cluster and its random history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = ScenarioCluster(NAMES)
        self.events: list[str] = []
        self.epoch = 0
        self.written = 0
        self.cluster.lead("A", 0)
        self.steps = [
            *[self.write] * 6,
            *[self.roll] * 2,
            *[self.copy] * 2,
            *[self.expire] * 2,
            *[self.leave_to_tier] * 4,
            *[self.follow] * 5,
            self.delete,
            *[self.stop] * 2,
            self.crash,
            *[self.wipe] * 3,
            *[self.elect] * 3,
        ]

    @property
    def leader(self) -> Broker:
        return self.cluster.leader

    def others(self) -> list[Broker]:
        return [broker for broker in self.cluster.brokers.values() if not broker.is_leading]

    def note(self, *words: object) -> None:
        self.events.append(" ".join(map(str, words)))

    # ---- steps

    def write(self) -> None:
        values = [f"m{self.written + each}" for each in range(self.random.randint(1, 4))]
        self.written += len(values)
        self.note("write", *values)
        self.cluster.write(values, self.random.randint(1, PRODUCERS))
        self.cluster.settle()

    def roll(self) -> None:
        broker = self.random.choice([broker for broker in self.cluster.brokers.values() if broker.is_running])
        self.note("roll", broker.name)
        broker.log.roll(NOW_MS)

    def copy(self) -> None:
        self.note("copy", self.leader.name)
        self.cluster.upload(self.leader.name)

    def expire(self) -> None:
        broker = self.random.choice([broker for broker in self.cluster.brokers.values() if broker.is_running])
        offset = self.random.randint(0, broker.log.log_end_offset)
        self.note("expire", broker.name, offset)
        self.cluster.expire(broker.name, offset)

    def leave_to_tier(self) -> None:
        """Delete all segments from the leader's disk that may be deleted."""
        leader = self.leader
        self.note("copy and expire", leader.name)
        leader.log.roll(NOW_MS)
        self.cluster.upload(leader.name)
        self.cluster.expire(leader.name, leader.log.log_end_offset)

    def follow(self) -> None:
        broker = self.random.choice(self.others())
        if not broker.is_running:
            broker.start()
        self.note("follow", broker.name)
        self.cluster.follow(broker.name)

    def delete(self) -> None:
        """Delete records while all brokers run: an uncleanly elected leader without the new log start would undo it."""
        log = self.leader.log
        if log.high_watermark and all(broker.leader is self.leader for broker in self.others()):
            offset = self.random.randint(0, log.high_watermark - 1)
            self.note("delete", self.leader.name, offset)
            self.leader.delete_records(offset)
            self.cluster.settle()

    def stop(self) -> None:
        broker = self.random.choice(self.others())
        if broker.is_running:
            self.note("stop", broker.name)
            self.cluster.stop(broker.name)

    def crash(self) -> None:
        broker = self.random.choice(self.others())
        if broker.is_running:
            self.note("crash", broker.name)
            self.cluster.crash(broker.name, self.random.randrange(1000))

    def wipe(self) -> None:
        broker = self.random.choice(self.others())
        if not broker.is_running:
            self.note("wipe", broker.name)
            broker.wipe()

    def elect(self) -> None:
        """Elect any broker with data; followers must be redirected."""
        candidates = [broker for broker in self.others() if broker.is_running and broker.log.log_end_offset]
        if not candidates:
            return
        broker = self.random.choice(candidates)
        self.epoch += self.random.randint(1, 2)
        self.note("lead", broker.name, self.epoch)
        for other in NAMES:
            self.cluster.unfollow(other)
        self.cluster.lead(broker.name, self.epoch)

    # ---- comparison

    def play(self) -> None:
        for _ in range(STEPS):
            self.random.choice(self.steps)()
        for broker in self.others():
            if not broker.is_running:
                broker.start()
            self.note("follow", broker.name)
            self.cluster.follow(broker.name)
        self.cluster.settle()

    def check(self) -> None:
        leader = self.leader
        for broker in self.others():
            assert _outline(broker) == _outline(leader), self.events
            assert _producers(broker) == _producers(leader), self.events
        for offset in range(leader.log.log_start_offset, leader.log.high_watermark):
            found = {self.cluster.read(name, offset).partition(" from ")[0] for name in NAMES}
            assert len(found) == 1, (offset, found, self.events)
            assert " of LE-" in found.pop(), (offset, self.events)


def _outline(broker: Broker) -> tuple[object, ...]:
    """Return the comparable part: a follower does not learn of an epoch before its first record."""
    log = broker.log
    epochs = [entry for entry in log.epochs.entries if entry.start_offset < log.log_end_offset]
    return log.log_start_offset, log.log_end_offset, log.high_watermark, epochs


def _producers(broker: Broker) -> dict[int, tuple[int, int]]:
    """Return last sequences and offsets; producers with deleted records only are not known to every broker."""
    entries = broker.log.producers.entries.values()
    known = {entry.producer_id: (entry.last_sequence, entry.last_data_offset) for entry in entries}
    return {name: last for name, last in known.items() if last[1] >= broker.log.log_start_offset}


def play(seed: int) -> None:
    history = RandomHistory(seed)
    history.play()
    history.check()


@pytest.mark.parametrize("seed", [*range(20), 41, 78, 86, 90, 91])
def test_replicas_converge_after_any_history(seed: int) -> None:
    """Run seeds, among them some that detected planted faults."""
    play(seed)


@pytest.mark.slow
def test_replicas_converge_after_many_histories() -> None:
    for seed in range(1000, 1100):
        play(seed)
