"""Gathers what the next Ready will hold. Whatever is put here leaves in the order that `ready.py` promises."""

from collections.abc import Callable

from broker.quorum.identity import LeaderAndEpoch
from broker.quorum.messages import Response
from broker.quorum.ready import Answer, ElectionState, LogOperation, Ready, SendRequest
from broker.quorum.snapshots.imports import ImportStep


class ReadyBuilder:
    """States, leaders and high watermarks replace each other; all else is kept in order."""

    def __init__(self) -> None:
        self.state: ElectionState | None = None
        self.log: list[LogOperation] = []
        self.must_sync = False
        self.sends: list[SendRequest] = []
        self.answers: list[Answer] = []
        self.leader: LeaderAndEpoch | None = None
        self.high_watermark: int | None = None
        self.imports: list[ImportStep] = []

    def _clear(self) -> None:
        self.state = self.leader = self.high_watermark = None
        self.log, self.sends, self.answers, self.imports, self.must_sync = [], [], [], [], False

    def answer(self, token: int, response: Response) -> None:
        self.answers.append(Answer(token, response))

    def revise_responses(self, replacement: Callable[[Response], Response]) -> None:
        """Thinks answers over that have not left yet, because what they promise to read may be gone."""
        self.answers = [Answer(each.token, replacement(each.response)) for each in self.answers]

    def take(self) -> Ready | None:
        """All of it; None if there is nothing."""
        if not self._is_full:
            return None
        ready = Ready(
            self.state,
            tuple(self.log),
            self.must_sync,
            tuple(self.sends),
            tuple(self.answers),
            self.leader,
            self.high_watermark,
            tuple(self.imports),
        )
        self._clear()
        return ready

    @property
    def _is_full(self) -> bool:
        return bool(
            self.sends
            or self.answers
            or self.log
            or self.imports
            or self.state is not None
            or self.leader is not None
            or self.high_watermark is not None
        )
