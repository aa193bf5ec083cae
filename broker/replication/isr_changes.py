"""Proposed ISR changes on their way to the controller (AlterPartition, KIP-497, KIP-903).

A leader has at most one proposal under way for each partition, and a broker one request, which carries all proposals
made until then. A proposal is sent again until it has an answer, or until metadata makes it void and its answer is
ignored:

    submitted --next_request--> in flight --answer--> Confirmed | Refused | Superseded
        ^                          |
        +--- Retried, no answer ---+          withdrawn, at any time: forgotten, whatever the answer

Confirmed: the controller has written the change. Refused: the change is not written and need not be sent again.
Superseded: the controller has newer state, which arrives as metadata; until then every possible member counts, so the
proposal stays pending.
"""

from collections.abc import Mapping
from typing import TypeAlias

from broker.replication.epochs import UNKNOWN_EPOCH
from broker.replication.isr import IsrProposal
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid

PartitionKey: TypeAlias = tuple[Uuid, int]
"""Topic id and partition index."""

MAX_CHANGES_PER_REQUEST = 100
"""The limit of changes in a request. The controller, and then each broker, handles the changes of a request in one turn
of its event loop, 0.1 to 0.2 ms each, and other requests wait meanwhile."""

_REFUSED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_SUPERSEDED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


@lazy_dataclass(frozen=True, slots=True)
class IsrAnswer:
    """The controller's answer for one partition. Epochs and members are set only with NONE."""

    error: ErrorCode
    leader_epoch: LeaderEpoch = UNKNOWN_EPOCH
    partition_epoch: int = -1
    isr: frozenset[int] = frozenset()


@lazy_dataclass(frozen=True, slots=True)
class Confirmed:
    proposal: IsrProposal
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: frozenset[int]


@lazy_dataclass(frozen=True, slots=True)
class Refused:
    proposal: IsrProposal
    error: ErrorCode


@lazy_dataclass(frozen=True, slots=True)
class Superseded:
    proposal: IsrProposal
    error: ErrorCode


@lazy_dataclass(frozen=True, slots=True)
class Retried:
    """The proposal joins the next request; `error` is None if the answer lacks the partition."""

    proposal: IsrProposal
    error: ErrorCode | None


Outcome: TypeAlias = Confirmed | Refused | Superseded | Retried


class IsrChanges:
    """The proposals of one broker."""

    def __init__(self) -> None:
        self._pending: dict[PartitionKey, IsrProposal] = {}
        self._in_flight: dict[PartitionKey, IsrProposal] | None = None

    def __len__(self) -> int:
        """Proposals without an answer."""
        return len(self._pending)

    def submit(self, key: PartitionKey, proposal: IsrProposal) -> None:
        """Send a change with the next request, instead of the partition's former proposal."""
        self._pending.pop(key, None)
        self._pending[key] = proposal

    def withdraw(self, key: PartitionKey) -> None:
        """Drop a proposal: metadata made it void, or the partition is gone."""
        self._pending.pop(key, None)

    def next_request(self) -> list[tuple[PartitionKey, IsrProposal]] | None:
        """Return the proposals to send now; None if there are none, or a request is under way.

        `on_response` or `on_failure` must follow.
        """
        if self._in_flight is not None or not self._pending:
            return None
        self._in_flight = dict(list(self._pending.items())[:MAX_CHANGES_PER_REQUEST])
        return list(self._in_flight.items())

    def on_response(self, answers: Mapping[PartitionKey, IsrAnswer]) -> list[tuple[PartitionKey, Outcome]]:
        """Return the outcomes of the proposals that were sent and not withdrawn."""
        sent, self._in_flight = self._in_flight or {}, None
        outcomes = [
            (key, _outcome(proposal, answers.get(key)))
            for key, proposal in sent.items()
            if self._pending.get(key) is proposal
        ]
        for key, outcome in outcomes:
            self._remove_or_requeue(key, outcome)
        return outcomes

    def on_failure(self) -> None:
        """Note that the request failed or has no answer: all its proposals are sent again."""
        self._in_flight = None

    def _remove_or_requeue(self, key: PartitionKey, outcome: Outcome) -> None:
        """Move a retried proposal to the end of the queue."""
        proposal = self._pending.pop(key)
        if isinstance(outcome, Retried):
            self._pending[key] = proposal


def _outcome(proposal: IsrProposal, answer: IsrAnswer | None) -> Outcome:
    if answer is None:
        return Retried(proposal, None)
    if answer.error is ErrorCode.NONE:
        return Confirmed(proposal, answer.leader_epoch, answer.partition_epoch, answer.isr)
    if answer.error in _REFUSED:
        return Refused(proposal, answer.error)
    if answer.error in _SUPERSEDED:
        return Superseded(proposal, answer.error)
    return Retried(proposal, answer.error)
