"""The shape of a coordinator shard: one partition of an internal topic, held in memory as a replayed state machine.

A command looks at the shard and returns a `Result`: records to append and the response to send once they are committed.
It changes no replayed state. `replay` does, with the same events whether the records were just appended by this node or
read back from the log after a restart or a change of leader, so both give the same state.

Two kinds of state live in a shard:

* replayed state follows from the log alone (committed offsets, groups as they were last written);
* soft state does not (who is parked, pending, which generation is being negotiated). Commands change it at once, and it
  is gone after failover. Where a record describes what the soft state already is, its Result says `replayed=False`.

This module knows nothing of logs, loops or wire formats.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from broker.coordination.timers import TimerQueue
from protocol.errors import ErrorCode

Event = TypeVar("Event")
Response = TypeVar("Response")
Other = TypeVar("Other")
Cause = TypeVar("Cause")


class CoordinatorRecord(NamedTuple, Generic[Event]):
    """A record on its way to the log: its bytes, and the event that replaying those bytes amounts to.

    `value` None is a tombstone. Carrying the event spares decoding what was encoded a moment ago.
    """

    key: bytes
    value: bytes | None
    event: Event


@dataclass(frozen=True, slots=True)
class Result(Generic[Event, Response]):
    """What a command decided.

    `records` go to the log as one batch (`atomic`), or as several when a clean-up makes more than fits one. They are
    replayed once appended, unless the soft state holds them already (`replayed=False`). `response` is due when they are
    committed. `on_outcome`, if given, is called exactly once: with NONE after the commit, else with the error that kept
    them from it; it may decide something further.
    """

    response: Response
    records: Sequence[CoordinatorRecord[Event]] = ()
    replayed: bool = True
    atomic: bool = True
    on_outcome: "Callable[[ErrorCode], Result[Event, None]] | None" = None

    def answering(self, response: Other) -> "Result[Event, Other]":
        """The same decision with another response."""
        return Result(response, self.records, self.replayed, self.atomic, self.on_outcome)


class Shard(Protocol[Event, Cause]):
    """A partition's state machine, as the runtime drives it."""

    @property
    def timers(self) -> TimerQueue[Cause]:
        """What the shard wants to be woken for; the runtime hands due causes to `on_timer`."""

    def decode(self, key: bytes, value: bytes | None) -> Event | None:
        """The event that a record of the log stands for; None for a type of record that this version does not know.

        Raises DecodeError when a known type is malformed.
        """

    def replay(self, event: Event, offset: int, producer_id: int) -> None:
        """Apply a record that is in the log at `offset`; `producer_id` is −1 outside of transactions."""

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply a transaction marker: what the producer had pending becomes visible or vanishes."""

    def on_timer(self, cause: Cause) -> Result[Event, None]:
        """A timer ran out."""

    def on_loaded(self) -> None:
        """The log has been replayed to its end and requests will follow: start timers."""

    def on_unloaded(self) -> None:
        """This node no longer leads the partition: answer everything parked with NOT_COORDINATOR."""
