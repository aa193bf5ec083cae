"""The follower's side of an incremental fetch session (KIP-227): the id and epoch of the next request.

    (0, 0)      names every replica; the leader opens a session if it has room
    (n, 0)      names every replica, and closes session n
    (n, e > 0)  names only changed and added replicas

Both sides count epochs. Whenever the counts may differ (a request failed, an answer does not fit), the follower
names every replica again, which is always valid. The fetcher, not the session, knows the replicas. A request that opens
a session may leave some of them to the next requests, unless the leader has no room for a session.
"""

from enum import Enum
from typing import Final

from protocol.errors import ErrorCode

NO_SESSION: Final = 0
OPENING: Final = 0
_LAST_EPOCH: Final = 2**31 - 1

SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class SessionOutcome(Enum):
    """The value of an answer."""

    USABLE = "usable"
    LOST = "lost"  # the session is lost: no data, but the leader works
    FAILED = "failed"  # equivalent to no answer


class FetchSessionHandler:
    """The successive sessions with one leader. The next request carries `id` and `epoch`."""

    __slots__ = ("epoch", "id", "is_declined", "is_lost_again")

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = OPENING
        self.is_declined = False
        """Whether the last full request got no session: then each request must name every replica."""
        self.is_lost_again = False

    @property
    def is_full(self) -> bool:
        """Whether the next request names every replica."""
        return self.epoch == OPENING

    def on_answer(self, error: int, session_id: int, *, fits: bool) -> SessionOutcome:
        """Evaluate an answer. `fits`: the answer lists valid partitions: all named ones if full, else members only.

        A session id of 0 means that the leader has no room for the session, or has closed it.
        """
        if error != ErrorCode.NONE or not fits:
            return self._lose(error)
        self.is_lost_again = False
        self.is_declined = self.is_full and session_id == NO_SESSION
        if session_id == NO_SESSION:
            self.id, self.epoch = NO_SESSION, OPENING
        elif self.epoch == OPENING:
            self.id, self.epoch = session_id, 1
        else:
            self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1
        return SessionOutcome.USABLE

    def on_failure(self) -> None:
        """Note a request without answer; the leader may or may not have counted it."""
        self.epoch = OPENING

    def _lose(self, error: int) -> SessionOutcome:
        """Accept the loss of a session once; a second loss in a row is a failure."""
        if error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.id = NO_SESSION
        self.epoch = OPENING
        may_happen = error in SESSION_ERRORS and error != ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if self.is_lost_again or not (may_happen or error == ErrorCode.NONE):
            return SessionOutcome.FAILED
        self.is_lost_again = True
        return SessionOutcome.LOST
