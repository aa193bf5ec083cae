"""The follower's half of an incremental fetch session (KIP-227): which id and epoch the next request carries.

    (0, 0)      everything is named; the leader opens a session if it has room
    (n, 0)      the same, and session n is closed
    (n, e > 0)  only what changed is named

Both sides count. Whenever the counts may differ (a request failed, an answer does not fit), the follower names
everything again: that is always right and costs one large request. It knows no partitions: what was named is the
fetcher's to remember.
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
    """What an answer is worth."""

    USABLE = "usable"
    ANEW = "anew"  # the session is lost: no data, but nothing is wrong with the leader
    FAILED = "failed"  # as good as no answer


class FetchSessionHandler:
    """One session after the other with one leader. `id` and `epoch` are what the next request carries."""

    __slots__ = ("epoch", "id", "is_lost_again")

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = OPENING
        self.is_lost_again = False

    @property
    def is_full(self) -> bool:
        """Whether the next request names everything."""
        return self.epoch == OPENING

    def on_answer(self, error: int, session_id: int, *, fits: bool) -> SessionOutcome:
        """Judge an answer. `fits`: it lists what it may: all that was named in full, or else only members.

        An id of 0 means that the leader has no room for the session, or has closed it.
        """
        if error != ErrorCode.NONE or not fits:
            return self._lose(error)
        self.is_lost_again = False
        if session_id == NO_SESSION:
            self.id, self.epoch = NO_SESSION, OPENING
        elif self.epoch == OPENING:
            self.id, self.epoch = session_id, 1
        else:
            self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1
        return SessionOutcome.USABLE

    def on_failure(self) -> None:
        """No answer came: the leader may or may not have counted the request."""
        self.epoch = OPENING

    def _lose(self, error: int) -> SessionOutcome:
        """A session may be lost at any time, but hardly twice in a row."""
        if error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.id = NO_SESSION
        self.epoch = OPENING
        may_happen = error in SESSION_ERRORS and error != ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if self.is_lost_again or not (may_happen or error == ErrorCode.NONE):
            return SessionOutcome.FAILED
        self.is_lost_again = True
        return SessionOutcome.ANEW
