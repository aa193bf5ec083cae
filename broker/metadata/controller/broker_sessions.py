"""Broker sessions: last contact and applied metadata offset of each broker, soft state of the active controller.

Sessions are not in the log: a new active controller grants every unfenced broker a full session. The states and their
transitions on a heartbeat are Kafka's.
"""

from collections import OrderedDict
from enum import Enum
from typing import Final

from protocol.ids import BrokerEpoch, BrokerId, Offset
from protocol.lazy_dataclass import lazy_dataclass


class BrokerControlState(Enum):
    """The state in which the controller keeps a broker."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


UNKNOWN_OFFSET: Final = Offset(-1)


@lazy_dataclass(slots=True)
class _Session:
    epoch: BrokerEpoch
    fenced: bool
    contact_ms: int
    metadata_offset: Offset = UNKNOWN_OFFSET
    shutdown_offset: Offset | None = None  # set during a controlled shutdown
    is_held: bool = True  # a process holds the session: it sent heartbeats and was not told to shut down
    has_contact: bool = False  # a heartbeat arrived at this controller
    unfenced_offset: Offset = UNKNOWN_OFFSET  # offset at which the metadata show the broker as unfenced

    @property
    def is_active(self) -> bool:
        return not self.fenced and self.shutdown_offset is None


class BrokerSessions:
    """Sessions by broker id. `timeout_ms` is `broker.session.timeout.ms`."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._sessions: dict[BrokerId, _Session] = {}
        self._by_contact: OrderedDict[BrokerId, None] = OrderedDict()  # unfenced brokers, oldest contact first

    def start(self, broker_id: BrokerId, epoch: BrokerEpoch, *, fenced: bool, offset: Offset, now_ms: int) -> None:
        """Start a new session after a registration, or when this controller becomes active.

        `offset` is that of the metadata which contain the broker's state. The first heartbeat shows whether a process
        holds the session of a fenced broker.
        """
        session = self._sessions[broker_id] = _Session(epoch, fenced, now_ms, is_held=not fenced)
        if not fenced:
            session.unfenced_offset = offset
        self._track(broker_id, fenced)

    def follow(self, broker_id: BrokerId, epoch: BrokerEpoch, *, fenced: bool, offset: Offset, now_ms: int) -> None:
        """Apply a change: a new epoch starts a session, a change of fencing continues the present one."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            self.start(broker_id, epoch, fenced=fenced, offset=offset, now_ms=now_ms)
        elif session.fenced != fenced:
            session.fenced = fenced
            if fenced:
                session.shutdown_offset = None
            else:
                session.contact_ms = now_ms
                session.unfenced_offset = offset
            self._track(broker_id, fenced)

    def clear(self) -> None:
        self._sessions.clear()
        self._by_contact.clear()

    def remove(self, broker_id: BrokerId) -> None:
        self._sessions.pop(broker_id, None)
        self._by_contact.pop(broker_id, None)

    def is_live(self, broker_id: BrokerId, epoch: BrokerEpoch, now_ms: int) -> bool:
        """Whether a broker with that epoch, fenced or not, had contact within the timeout and did not shut down."""
        session = self._sessions.get(broker_id)
        return (
            session is not None
            and session.is_held
            and session.epoch == epoch
            and now_ms < session.contact_ms + self._timeout_ms
        )

    def is_presumed(self, broker_id: BrokerId) -> bool:
        """Whether no heartbeat of the session has arrived at this controller."""
        return not self._sessions[broker_id].has_contact

    def precedes_unfencing(self, broker_id: BrokerId, metadata_offset: Offset) -> bool:
        """Whether a heartbeat was sent before the broker read that it is unfenced.

        A broker asks to be fenced only while it starts, and its metadata offset never falls. A request to be fenced
        with such an offset is a delayed one of the start.
        """
        return metadata_offset < self._sessions[broker_id].unfenced_offset

    def touch(
        self, broker_id: BrokerId, epoch: BrokerEpoch, *, fenced: bool, metadata_offset: Offset, now_ms: int
    ) -> None:
        """Renew a session on a heartbeat and record the applied metadata offset."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = _Session(epoch, fenced, now_ms)
        session.contact_ms = now_ms
        session.is_held = session.has_contact = True
        session.fenced = fenced
        session.metadata_offset = max(session.metadata_offset, metadata_offset)
        if fenced:
            session.shutdown_offset = None
        self._track(broker_id, fenced)

    def release(self, broker_id: BrokerId) -> None:
        """Mark a session as not held after the broker was told to shut down: another process may register at once."""
        self._sessions[broker_id].is_held = False

    def begin_shutdown(self, broker_id: BrokerId, offset: Offset) -> None:
        """Record that the records of a controlled shutdown end at `offset`; later calls have no effect."""
        session = self._sessions[broker_id]
        if not session.fenced and session.shutdown_offset is None:
            session.shutdown_offset = offset

    def move_shutdowns(self, *, after: Offset, by: int) -> None:
        """Move the shutdown offsets after `after` up, because control records took the expected offsets."""
        for session in self._sessions.values():
            if session.shutdown_offset is not None and session.shutdown_offset > after:
                session.shutdown_offset = Offset(session.shutdown_offset + by)

    def is_shutting_down(self, broker_id: BrokerId) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and session.shutdown_offset is not None

    def next_state(
        self, broker_id: BrokerId, *, fenced: bool, caught_up: bool, want_fence: bool, want_shut_down: bool, leads: bool
    ) -> BrokerControlState:
        """Return the next state. `caught_up`: the broker has read its registration; `leads`: it leads a partition."""
        if fenced:
            return self._next_of_fenced(caught_up, want_fence, want_shut_down)
        if self.is_shutting_down(broker_id):
            over = not leads and self._all_active_have_read(self._sessions[broker_id].shutdown_offset or Offset(0))
            return BrokerControlState.SHUTDOWN_NOW if over else BrokerControlState.CONTROLLED_SHUTDOWN
        if want_shut_down:
            gentle = leads and not want_fence
            return BrokerControlState.CONTROLLED_SHUTDOWN if gentle else BrokerControlState.SHUTDOWN_NOW
        return BrokerControlState.FENCED if want_fence else BrokerControlState.UNFENCED

    def expired(self, now_ms: int) -> BrokerId | None:
        """Return the unfenced broker with the oldest contact if its session has expired."""
        for broker_id in self._by_contact:
            overdue = now_ms >= self._sessions[broker_id].contact_ms + self._timeout_ms
            return broker_id if overdue else None
        return None

    def next_expiry_ms(self) -> int | None:
        """Return when the next session expires; None without an unfenced broker."""
        for broker_id in self._by_contact:
            return self._sessions[broker_id].contact_ms + self._timeout_ms
        return None

    @staticmethod
    def _next_of_fenced(caught_up: bool, want_fence: bool, want_shut_down: bool) -> BrokerControlState:
        if want_shut_down:
            return BrokerControlState.SHUTDOWN_NOW
        return BrokerControlState.FENCED if want_fence or not caught_up else BrokerControlState.UNFENCED

    def _all_active_have_read(self, offset: Offset) -> bool:
        return all(session.metadata_offset >= offset for session in self._sessions.values() if session.is_active)

    def _track(self, broker_id: BrokerId, fenced: bool) -> None:
        if fenced:
            self._by_contact.pop(broker_id, None)
        else:
            self._by_contact[broker_id] = None
            self._by_contact.move_to_end(broker_id)
