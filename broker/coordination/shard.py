"""The shape of a coordinator shard: one partition of an internal topic, held in memory as a replayed state machine.

A command reads the shard and returns a `CoordinatorResult`: records to append, and the response to send once they are
committed. A command does not change replayed state. `replay` changes it, with the same events whether this node has
just appended the records or reads them back after a restart or a change of leader, so both give the same state.

A shard holds two kinds of state:

* replayed state follows from the log alone (committed offsets, groups as last written);
* soft state does not (parked requests, pending members, the generation under negotiation). Commands change it at once,
  and a failover discards it. Where a record describes what the soft state already holds, its CoordinatorResult has
  `replayed=False`.

This module knows neither logs nor event loops nor wire formats.
"""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from broker.coordination.parked_records import ParkedRecords
from broker.coordination.timers import TimerQueue
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass

Event = TypeVar("Event")
Response = TypeVar("Response")
Other = TypeVar("Other")
Cause = TypeVar("Cause")


class CoordinatorRecord(NamedTuple, Generic[Event]):
    """A record for the log: its bytes, and the event that a replay of those bytes yields.

    `value` None is a tombstone. The event saves decoding bytes that were encoded a moment ago.
    """

    key: bytes
    value: bytes | None
    event: Event


@lazy_dataclass(frozen=True, slots=True)
class CoordinatorResult(Generic[Event, Response]):
    """The decision of a command.

    `records` go to the log as one batch (`atomic`), or as several batches when a clean-up exceeds one. The runtime
    replays them after the append, unless the soft state holds them already (`replayed=False`). `response` is due when
    the records are committed. `on_outcome`, if given, is called exactly once: with NONE after the commit, else with the
    error that prevented it. `on_outcome` may return a further decision.
    """

    response: Response
    records: Sequence[CoordinatorRecord[Event]] = ()
    replayed: bool = True
    atomic: bool = True
    on_outcome: "Callable[[ErrorCode], CoordinatorResult[Event, None]] | None" = None

    def answering(self, response: Other) -> "CoordinatorResult[Event, Other]":
        """Return the same decision with another response."""
        return CoordinatorResult(response, self.records, self.replayed, self.atomic, self.on_outcome)


class Parking(Protocol):
    """Records of a shard that are loaded and not replayed."""

    @property
    def is_empty(self) -> bool: ...

    def park(self, records: ParkedRecords) -> None:
        """Take over records, which the shard replays before it uses their owners."""

    def replay_some(self) -> None:
        """Replay some of the records."""


class Shard(Protocol[Event, Cause]):
    """The state machine of one partition, as the runtime drives it."""

    @property
    def timers(self) -> TimerQueue[Cause]:
        """Timers of the shard; the runtime passes due causes to `on_timer`."""

    @property
    def parking(self) -> Parking | None:
        """The records that are loaded and not replayed; None for a shard that replays all of them at once."""

    def decode(self, key: bytes, value: bytes | None) -> Event | None:
        """Decode a record of the log. Return None for a record type that this version does not know.

        Raise DecodeError when a known type is malformed.
        """

    def replay(self, event: Event, offset: int, producer_id: int) -> None:
        """Apply a record that is in the log at `offset`; `producer_id` is −1 outside of transactions."""

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply a transaction marker: commit or discard what the producer had pending."""

    def on_timer(self, cause: Cause) -> CoordinatorResult[Event, None]:
        """Handle a timer that has expired."""

    def on_loaded(self) -> None:
        """Start timers: the log has been replayed to its end, and requests will follow."""

    def on_unloaded(self) -> None:
        """Answer every parked request with NOT_COORDINATOR: this node no longer leads the partition."""
