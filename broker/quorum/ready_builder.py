"""Collects the content of the next `Ready`. The order of execution is defined in `ready.py`."""

from collections.abc import Callable

from broker.quorum.identity import LeaderAndEpoch
from broker.quorum.messages import Response
from broker.quorum.ready import ElectionState, LogOperation, PendingResponse, Ready, SendRequest, SendResponse
from broker.quorum.snapshots.imports import ImportStep
from protocol.ids import Offset


class ReadyBuilder:
    """Election state, leader and high watermark are overwritten by newer values; all other items are kept in order."""

    def __init__(self) -> None:
        self.state: ElectionState | None = None
        self.log: list[LogOperation] = []
        self.must_sync = False
        self.requests: list[SendRequest] = []
        self.responses: list[PendingResponse] = []
        self.leader: LeaderAndEpoch | None = None
        self.high_watermark: Offset | None = None
        self.imports: list[ImportStep] = []

    def _clear(self) -> None:
        self.state = self.leader = self.high_watermark = None
        self.log, self.requests, self.responses, self.imports, self.must_sync = [], [], [], [], False

    def respond(self, token: int, response: Response) -> None:
        """Respond to the request that arrived under `token`."""
        self.responses.append(SendResponse(token, response))

    def revise_responses(self, revise: Callable[[PendingResponse], PendingResponse]) -> None:
        """Replace responses that have not been taken yet, because the data they would read may be deleted."""
        self.responses = [revise(each) for each in self.responses]

    def take(self) -> Ready | None:
        """Return everything collected so far and start over; None if nothing was collected."""
        if not self._has_content:
            return None
        ready = Ready(
            self.state,
            tuple(self.log),
            self.must_sync,
            tuple(self.requests),
            tuple(self.responses),
            self.leader,
            self.high_watermark,
            tuple(self.imports),
        )
        self._clear()
        return ready

    @property
    def _has_content(self) -> bool:
        return bool(
            self.requests
            or self.responses
            or self.log
            or self.imports
            or self.state is not None
            or self.leader is not None
            or self.high_watermark is not None
        )
