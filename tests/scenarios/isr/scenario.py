"""Scenarios of one partition at its leader: in-sync replicas, high watermark, and AlterPartition requests.

Broker 1 leads or follows, with the rules of the product; the transcript plays the controller.

    limits lag=30000 min-isr=2                  replica.lag.time.max.ms, min.insync.replicas
    metadata leader=1 epoch=5 version=0 replicas=1,2,3 isr=1,2,3 [adding=4]     deliver the partition's metadata
    append 3                                    append records of producers
    fetch 2 10 [broker-epoch=7] [epoch=5]       broker 2 fetches at offset 10
    contact 2                                   broker 2 continues its fetch session, which leaves the partition out
    wait 1000                                   let time pass
    check-lag                                   run the timer that removes lagging replicas
    fenced 3    unfenced 3                      change the metadata of broker 3; `register 3` registers it again
    send                                        send AlterPartition to the controller
    accept      lose      answer CODE           deliver its outcome: accepted, no response, an error code
    status                                      show the leader's state
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from broker.replication.isr import CommittedIsr, PendingExpand, PendingIsr
from broker.replication.isr_changes import Confirmed, IsrAnswer, IsrChanges, Refused, Retried
from broker.replication.leader import CommitTerms, FollowerFetch, LeaderRole
from broker.replication.partition import Role, next_role
from protocol.errors import ErrorCode
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from protocol.primitives import ONE_UUID
from tests.scenarios.transcript import Command, Named, Scenario, Words

OWN_ID = 1
KEY = (ONE_UUID, 0)


class Assigned(NamedTuple):
    """The partition's state in the metadata log."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()


@dataclass(slots=True)
class Session:
    """A follower's fetch session. Implements FollowerContact."""

    last_contact_ms: int
    is_recalled: bool = False

    def recall(self) -> None:
        self.is_recalled = True


class IsrScenario(Scenario):
    """Interpreter of the commands above."""

    def __init__(self) -> None:
        super().__init__()
        self.role: Role | None = None
        self.changes = IsrChanges()
        self.now_ms = 0
        self.log_end = 0
        self.high_watermark = 0
        self.lag_ms = 30_000
        self.min_isr = 1
        self.fenced: set[int] = set()
        self.broker_epochs: dict[int, int] = {}
        self.sessions: dict[int, Session] = {}
        self.commands: Mapping[str, Command] = {
            "limits": self.limits,
            "metadata": self.metadata,
            "append": self.append,
            "fetch": self.fetch,
            "contact": self.contact,
            "wait": self.wait,
            "check-lag": self.check_lag,
            "fenced": lambda words, _: self.fenced.update(map(int, words)),
            "unfenced": lambda words, _: self.fenced.difference_update(map(int, words)),
            "register": self.register,
            "send": self.send,
            "accept": self.accept,
            "lose": lambda _words, _named: self.changes.on_failure(),
            "answer": self.answer,
            "status": self.status,
        }

    @property
    def leader(self) -> LeaderRole:
        assert isinstance(self.role, LeaderRole), "broker 1 does not lead"
        return self.role

    # Events

    def limits(self, _words: Words, named: Named) -> None:
        self.lag_ms = int(named.get("lag", self.lag_ms))
        self.min_isr = int(named.get("min-isr", self.min_isr))

    def metadata(self, _words: Words, named: Named) -> None:
        assigned = Assigned(
            BrokerId(int(named["leader"])),
            LeaderEpoch(int(named["epoch"])),
            int(named["version"]),
            ids_of(named["replicas"]),
            ids_of(named["isr"]),
            ids_of(named.get("adding", "")),
        )
        change = next_role(
            self.role, assigned, broker_id=BrokerId(OWN_ID), log_end_offset=self.log_end, now_ms=self.now_ms
        )
        if change is None:
            self.show("stale metadata ignored")
            return
        if change.is_new_epoch or not isinstance(change.role, LeaderRole) or isinstance(change.role.isr, CommittedIsr):
            self.changes.withdraw(KEY)
        self.role = change.role
        kind = "leads" if isinstance(change.role, LeaderRole) else "follows"
        begins = ", a new leader epoch" if change.is_new_epoch else ""
        self.show(f"broker 1 {kind} in epoch {change.role.epoch}, version {change.role.partition_epoch}{begins}")
        self.commit()

    def append(self, words: Words, _named: Named) -> None:
        if not self.leader.has_enough_replicas(self.min_isr):
            self.show("NOT_ENOUGH_REPLICAS for acks=all")
            return
        self.leader.on_append(self.log_end)
        self.log_end += int(words[0])
        self.show(f"log end offset {self.log_end}")
        self.commit()

    def fetch(self, words: Words, named: Named) -> None:
        broker_id, offset = map(int, words)
        broker_epoch = int(named.get("broker-epoch", self.broker_epochs.get(broker_id, -1)))
        epoch = int(named.get("epoch", self.leader.epoch))
        session = self.sessions[broker_id] = Session(self.now_ms)
        fetch = FollowerFetch(BrokerId(broker_id), BrokerEpoch(broker_epoch), LeaderEpoch(epoch), offset, 0, session)
        error = self.leader.on_follower_fetch(
            fetch, self.log_end, self.now_ms, BrokerEpoch(self.broker_epochs.get(broker_id, -1))
        )
        if error is not ErrorCode.NONE:
            self.show(f"{error.name}: fetch ignored")
            return
        self.propose(self.leader.propose_expand(BrokerId(broker_id), self.high_watermark, self.is_eligible))
        self.commit()

    def contact(self, words: Words, _named: Named) -> None:
        self.sessions[int(words[0])].last_contact_ms = self.now_ms

    def wait(self, words: Words, _named: Named) -> None:
        self.now_ms += int(words[0])

    def check_lag(self, _words: Words, _named: Named) -> None:
        self.propose(self.leader.propose_shrink(self.log_end, self.now_ms, self.lag_ms))
        self.commit()

    def register(self, words: Words, _named: Named) -> None:
        broker_id = int(words[0])
        self.broker_epochs[broker_id] = self.broker_epochs.get(broker_id, 0) + 1
        self.show(f"broker {broker_id} is registered with broker epoch {self.broker_epochs[broker_id]}")

    # Proposals

    def propose(self, pending: PendingIsr | None) -> None:
        if pending is not None:
            what = (
                f"expand the ISR by {pending.added}"
                if isinstance(pending, PendingExpand)
                else f"shrink the ISR by {ids(pending.removed)}"
            )
            self.show(f"proposes to {what}")
            self.changes.submit(KEY, self.leader.proposal(pending, own_broker_epoch=BrokerEpoch(1)))

    def send(self, _words: Words, _named: Named) -> None:
        for _key, proposal in self.changes.next_request() or ():
            members = ", ".join(f"{broker} (broker epoch {epoch})" for broker, epoch in proposal.members)
            where = f"in epoch {proposal.leader_epoch}, version {proposal.partition_epoch}"
            self.show(f"-> controller: AlterPartition ISR {members} {where}")

    def accept(self, _words: Words, _named: Named) -> None:
        pending = self.leader.isr
        assert not isinstance(pending, CommittedIsr), "a proposal is pending"
        self.deliver(IsrAnswer(ErrorCode.NONE, self.leader.epoch, self.leader.partition_epoch + 1, pending.proposed))

    def answer(self, words: Words, _named: Named) -> None:
        self.deliver(IsrAnswer(ErrorCode[words[0]]))

    def deliver(self, answer: IsrAnswer) -> None:
        outcomes = self.changes.on_response({KEY: answer})
        if not outcomes:
            self.show("response ignored: no pending proposal")
        for _key, outcome in outcomes:
            match outcome:
                case Confirmed():
                    self.leader.on_isr_confirmed(outcome.leader_epoch, outcome.partition_epoch, outcome.isr)
                    self.show(f"ISR {ids(outcome.isr)}, version {outcome.partition_epoch}")
                case Refused():
                    self.leader.on_isr_refused()
                    self.show("proposal dropped")
                case Retried():
                    self.show("proposal to be retried")
                case _:
                    self.show("outcome unknown: the maximal ISR applies until the next metadata")
        self.commit()

    # High watermark and output

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        return broker_id not in self.fenced and broker_epoch == self.broker_epochs.get(broker_id, -1)

    def commit(self) -> None:
        if isinstance(self.role, LeaderRole):
            terms = CommitTerms(self.min_isr, self.now_ms, self.lag_ms, self.is_eligible)
            before = self.high_watermark
            self.high_watermark = self.role.high_watermark(before, self.log_end, terms)
            if self.high_watermark > before:
                self.show(f"high watermark {self.high_watermark}")

    def status(self, _words: Words, _named: Named) -> None:
        leader = self.leader
        uncommitted = "" if leader.has_committed_own_epoch(self.high_watermark) else ", leader epoch not committed yet"
        self.show(f"log end offset {self.log_end}, high watermark {self.high_watermark}{uncommitted}")
        maximal = leader.isr.maximal - leader.isr.committed
        joining = f", {ids(maximal)} proposed" if maximal else ""
        leaving = "" if isinstance(leader.isr, CommittedIsr) else f", {ids(leader.isr.committed - leader.isr.proposed)}"
        leaving = f"{leaving} to be removed" if leaving.strip(", ") else ""
        self.show(f"ISR {ids(leader.isr.committed)}{joining}{leaving}")
        for broker_id, follower in sorted(leader.followers.items()):
            known = (
                f"has fetched up to {follower.log_end_offset}" if follower.log_end_offset >= 0 else "has not fetched"
            )
            self.show(f"{broker_id} {known}")


def ids_of(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)


def ids(brokers: frozenset[int]) -> str:
    return ",".join(str(broker) for broker in sorted(brokers))
