"""A client that commits the offsets of its group, and fetches them again."""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from broker.transactions.state import TransactionPartition
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.simulation.cluster.coordinators.checker import CoordinatorChecker
from tests.simulation.cluster.coordinators.services import WireServices
from tests.simulation.transactions.clients import Application, Program
from tests.simulation.transactions.network import Answer

_COMMIT_VERSION: Final = 9
_FETCH_VERSION: Final = 9
_PAUSE_MS: Final = 300.0
_RETRY_MS: Final = 60.0
_NONE_YET: Final = -1


class OffsetClient(Application):
    """The only client of a group. A commit without response may be executed at any later time."""

    def __init__(
        self,
        group_id: str,
        subject: TransactionPartition,
        services: WireServices,
        rng: Random,
        checker: CoordinatorChecker,
    ) -> None:
        self.group_id = group_id
        self._subject = subject
        self._wires = services
        self._rng = rng
        self._checker = checker
        self._next = 1
        self._possible: dict[int, str] = {_NONE_YET: "nothing is committed"}
        super().__init__(services)

    def _run(self) -> Program:
        while not self.is_stopping:
            yield from self._commit()
            yield self._rng.random() * _PAUSE_MS
            if self._rng.random() < 0.4:
                yield from self._fetch()
        yield from self._fetch()

    def _commit(self) -> Program:
        offset, self._next = self._next, self._next + 1
        self._possible[offset] = "refused"
        for _ in range(self._rng.randint(1, 6)):
            was_answered = False

            def read(response: OffsetCommitResponse) -> Answer[None]:
                nonlocal was_answered
                was_answered = True
                code = ErrorCode(response.topics[0].partitions[0].error_code)
                return None if code is ErrorCode.NONE else code

            answer = yield self._wires.request(
                self._wires.group_partition(self.group_id),
                self._request(offset),
                _COMMIT_VERSION,
                read,
                may_stray=False,
            )
            if not was_answered:
                self._possible[offset] = "unanswered"
            if answer is None:
                self._on_acknowledged(offset)
                return
            assert answer is ErrorCode.REQUEST_TIMED_OUT, answer
            yield _RETRY_MS

    def _on_acknowledged(self, offset: int) -> None:
        """Forget what can no longer come true: a coordinator executes the requests that it has answered in order."""
        late = {each: reason for each, reason in self._possible.items() if reason == "unanswered"}
        self._possible = {offset: "acknowledged"} | {each: "unanswered" for each in late}

    def _request(self, offset: int) -> Callable[[], OffsetCommitRequest]:
        topic, index = self._subject
        return lambda: OffsetCommitRequest(
            self.group_id,
            topics=[OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(index, offset)])],
        )

    def _fetch(self) -> Program:
        offset = yield from fetch_offset(self._wires, self.group_id, self._subject)
        self._checker.on_offset_fetched(self.group_id, offset, self._possible)


def fetch_offset(services: WireServices, group_id: str, subject: TransactionPartition) -> Program:
    """Fetch the committed offset of a group, stable and known to be committed; try until there is an answer."""
    topic, index = subject

    def make() -> OffsetFetchRequest:
        wanted = OffsetFetchRequestTopics(topic, partition_indexes=[index])
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id, topics=[wanted])], require_stable=True)

    while True:
        answer = yield services.request(services.group_partition(group_id), make, _FETCH_VERSION, _offset)
        if not isinstance(answer, ErrorCode):
            return answer
        assert answer is ErrorCode.REQUEST_TIMED_OUT, answer
        yield _RETRY_MS


def _offset(response: OffsetFetchResponse) -> Answer[Any]:
    (group,) = response.groups
    code = ErrorCode(group.error_code)
    if code is not ErrorCode.NONE:
        return code
    (partition,) = group.topics[0].partitions
    code = ErrorCode(partition.error_code)
    return partition.committed_offset if code is ErrorCode.NONE else code
