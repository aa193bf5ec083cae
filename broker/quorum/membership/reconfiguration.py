"""Changing who votes, on the leader: add, remove, update a voter, and go to kraft.version 1 (KIP-853, KAFKA-16538).

Theory. A new set of voters counts from its append on, committed or not. Two sets that differ by one voter cannot decide
behind each other's back, so one change at a time is safe, if (a) the one before is committed, and (b) the leader has
committed something in its own epoch: otherwise two leaders, each ignorant of the other's uncommitted change, could go
on from sets that differ by two (Ongaro's correction of 2015). Both are asked of every change here, also of those that
leave the set as it is, for they are control records like the others.

Each operation is one class; its docstring is its protocol. They act through `ChangingLeader` and know nothing else.
"""

from math import inf
from typing import Final, Protocol, TypeAlias

from broker.quorum.identity import KRaftVersions, Listeners, ReplicaKey, SocketAddress
from broker.quorum.membership.voters import VoterNode, VoterSet
from broker.quorum.messages import (
    AddVoterRequest,
    ProbeResponse,
    RemoveVoterRequest,
    SendFailure,
    UpdateVoterRequest,
)
from protocol.errors import ErrorCode
from protocol.primitives import ZERO_UUID

DYNAMIC_VERSION: Final = 1
"""The first kraft.version at which voters may change."""


class ChangingLeader(Protocol):
    """What a change sees of the leader, and has it do. Offsets of -1 mean unknown."""

    @property
    def own(self) -> VoterNode:
        """This node as it would be entered now."""
        ...

    @property
    def default_listener(self) -> str: ...

    @property
    def voters(self) -> VoterSet: ...

    @property
    def voters_offset(self) -> int | None:
        """Of the record that the voters are from; None if they are configured."""
        ...

    @property
    def kraft_version(self) -> int: ...

    @property
    def committed(self) -> int:
        """The high watermark; -1 while nothing of the own epoch is committed."""
        ...

    def is_caught_up(self, replica: ReplicaKey) -> bool:
        """Whether an observer under exactly this key had the whole log a moment ago."""
        ...

    def probe(self, replica: ReplicaKey, endpoint: SocketAddress) -> bool:
        """Asks a node what it supports; its one outcome comes later to `on_probe`. False if it cannot be asked now."""
        ...

    def append_voters(self, kraft_version: int | None, voters: VoterSet) -> int:
        """Appends one control batch, with a kraft.version record if it is given; returns the last offset. From then on
        these voters count.
        """
        ...

    def answer(self, token: int, error: ErrorCode, message: str | None) -> None: ...


class AddVoter:
    """A replica becomes a voter.

    1. It names an id and a directory, and listens under the default controller listener: else INVALID_REQUEST.
    2. No other change is under way, the last one is committed, so is something of this epoch: else REQUEST_TIMED_OUT,
       after which clients try again. kraft.version lets voters change: else UNSUPPORTED_VERSION.
    3. Its id is not a voter's, in whatever directory: else DUPLICATE_VOTER. A new disk means: remove, then add.
    4. Its default listener is asked what it supports. No answer in time: REQUEST_TIMED_OUT.
    5. That covers the kraft.version in force: else INVALID_REQUEST.
    6. It has the whole log, so that it does not hold up the commits it will count for: else REQUEST_TIMED_OUT.
    7. The set with it is appended and counts. Who waits for no commit is answered now: its own fetch, which the commit
       may need, would wait behind this answer (KIP-1186).
    8. The record is committed, by a majority of the new set: success.
    9. Time runs out first: REQUEST_TIMED_OUT, although the record may still be committed.
    """

    def __init__(self, token: int, request: AddVoterRequest, deadline: float) -> None:
        self.token = token
        self.deadline = deadline
        self.offset: int | None = None
        """Of the voters record, once there is one."""
        self._request = request

    @property
    def key(self) -> ReplicaKey:
        return self._request.voter

    def begin(self, leader: ChangingLeader) -> bool:
        """Steps 3 and 4. Returns whether it goes on."""
        if self.key.id in leader.voters:
            message = f"Node {self.key.id} is a voter already."
            return _refuse(leader, self.token, ErrorCode.DUPLICATE_VOTER, message)
        endpoint = VoterNode(self.key, self._request.listeners).endpoint(leader.default_listener)
        assert endpoint is not None
        if leader.probe(self.key, endpoint):
            return True
        return _refuse(leader, self.token, ErrorCode.REQUEST_TIMED_OUT, f"Node {self.key.id} cannot be asked now.")

    def on_probe(self, outcome: ProbeResponse | SendFailure, leader: ChangingLeader) -> bool:
        """Steps 5 to 7. Returns whether it goes on."""
        if not isinstance(outcome, ProbeResponse) or outcome.error:
            message = f"Node {self.key.id} did not say what it supports: {outcome.error.name}."
            return _refuse(leader, self.token, ErrorCode.REQUEST_TIMED_OUT, message)
        if leader.kraft_version not in outcome.versions:
            message = f"Node {self.key.id} does not support kraft.version {leader.kraft_version}."
            return _refuse(leader, self.token, ErrorCode.INVALID_REQUEST, message)
        if not leader.is_caught_up(self.key):
            message = f"Node {self.key.id} has not fetched the whole metadata log yet."
            return _refuse(leader, self.token, ErrorCode.REQUEST_TIMED_OUT, message)
        self.offset = leader.append_voters(
            None, leader.voters.with_voter(VoterNode(self.key, self._request.listeners, outcome.versions))
        )
        if not self._request.ack_when_committed:
            leader.answer(self.token, ErrorCode.NONE, None)
        return self._request.ack_when_committed


class RemoveVoter:
    """A voter becomes an observer.

    1. It is named by an id and a directory: else INVALID_REQUEST.
    2. As for adding one.
    3. It is a voter, exactly, and not the last: else VOTER_NOT_FOUND.
    4. The set without it is appended and counts: a leader that removes itself goes on without counting itself.
    5. The record is committed, by a majority of the new set: success; a leader that is out then resigns.
    6. Time runs out first: REQUEST_TIMED_OUT, although the record may still be committed.
    """

    def __init__(self, token: int, request: RemoveVoterRequest, deadline: float) -> None:
        self.token = token
        self.deadline = deadline
        self.offset: int | None = None
        self._request = request

    def begin(self, leader: ChangingLeader) -> bool:
        """Steps 3 and 4. Returns whether it goes on."""
        key = self._request.voter
        if key not in leader.voters.keys:
            return _refuse(leader, self.token, ErrorCode.VOTER_NOT_FOUND, f"Node {key.id} is no voter, or elsewhere.")
        if len(leader.voters) == 1:
            return _refuse(leader, self.token, ErrorCode.VOTER_NOT_FOUND, f"Node {key.id} is the last voter.")
        self.offset = leader.append_voters(None, leader.voters.without(key))
        return True


class UpdateVoter:
    """A voter says itself where it listens and what it supports.

    1. It names an id, a directory and the default controller listener, and a range that can be: else INVALID_REQUEST.
    2. As for adding one; but voters that may not change yet are heard too (7).
    3. It is one of the voters: else VOTER_NOT_FOUND.
    4. Its range covers the kraft.version in force: else INVALID_REQUEST.
    5. If its entry differs, the set with the new one is appended and counts.
    6. It is answered at once: the commit may need its next fetch, which waits behind this answer (KAFKA-16534).
    7. At kraft.version 0 nothing is appended. The leader remembers what it heard for as long as it leads: the step to
       version 1 needs the directories and ranges of all.
    """

    def __init__(self, token: int, request: UpdateVoterRequest) -> None:
        self.token = token
        self.voter = VoterNode(request.voter, request.listeners, request.versions)

    def run(self, leader: ChangingLeader, heard: dict[int, VoterNode]) -> None:
        """Steps 3 to 7."""
        voter, name = self.voter, f"Node {self.voter.key.id}"
        if not leader.voters.has(voter.key):
            _refuse(leader, self.token, ErrorCode.VOTER_NOT_FOUND, f"{name} is no voter, or elsewhere.")
        elif leader.kraft_version not in voter.versions:
            message = f"{name} does not support kraft.version {leader.kraft_version}."
            _refuse(leader, self.token, ErrorCode.INVALID_REQUEST, message)
        else:
            self._accept(leader, heard)
            leader.answer(self.token, ErrorCode.NONE, None)

    def _accept(self, leader: ChangingLeader, heard: dict[int, VoterNode]) -> None:
        if leader.kraft_version < DYNAMIC_VERSION:
            heard[self.voter.key.id] = self.voter
        elif leader.voters.get(self.voter.key.id) != self.voter:
            leader.append_voters(None, leader.voters.updated(self.voter))


class UpgradeVersion:
    """Voters that are configured become voters that may change (KAFKA-16538).

    1. There is no way back and nothing beyond what this node supports: else INVALID_UPDATE_VERSION. The version in
       force succeeds at once.
    2. As for adding one, without the question about kraft.version.
    3. Every voter has told this leader its directory and range (the leader knows its own), and supports the version:
       else INVALID_UPDATE_VERSION, naming who does not. A voter that is away holds it up.
    4. One control batch with the version and the same voters, now with directories, is appended and counts.
    5. It is committed: success.
    6. Time runs out first: REQUEST_TIMED_OUT, although it may still be committed.
    """

    def __init__(self, token: int, version: int, deadline: float) -> None:
        self.token = token
        self.deadline = deadline
        self.offset: int | None = None
        self._version = version

    def begin(self, leader: ChangingLeader, heard: dict[int, VoterNode]) -> bool:
        """Steps 3 and 4. Returns whether it goes on."""
        known = {**heard, leader.own.key.id: leader.own}
        unready = [each for each in leader.voters.ids if each not in known or self._version not in known[each].versions]
        if unready:
            message = f"Of the voters, {unready} do not support kraft.version {self._version} or have not said so."
            return _refuse(leader, self.token, ErrorCode.INVALID_UPDATE_VERSION, message)
        self.offset = leader.append_voters(self._version, VoterSet(known[each] for each in leader.voters.ids))
        return True


_Pending: TypeAlias = AddVoter | RemoveVoter | UpgradeVersion


class Reconfiguration:
    """The changes of one leader in one epoch, one at a time. Cluster id, epoch and leadership are checked before.

    Times are monotonic, in ms.
    """

    def __init__(self, leader: ChangingLeader, timeout_ms: float) -> None:
        self._leader = leader
        self._timeout_ms = timeout_ms
        self._pending: _Pending | None = None
        self._heard: dict[int, VoterNode] = {}

    @property
    def deadline(self) -> float:
        """When `tick` has something to do."""
        return inf if self._pending is None else self._pending.deadline

    @property
    def is_pending(self) -> bool:
        return self._pending is not None

    @property
    def updated_voter_ids(self) -> tuple[int, ...]:
        """The voters that have told of themselves, which counts at kraft.version 0 alone."""
        return tuple(sorted(self._heard))

    # Beginning one

    def add(self, token: int, request: AddVoterRequest, now_ms: float) -> None:
        if self._is_named(token, request.voter) and self._listens(token, request.listeners) and self._may_change(token):
            operation = AddVoter(token, request, now_ms + self._timeout_ms)
            self._pending = operation if operation.begin(self._leader) else None

    def remove(self, token: int, request: RemoveVoterRequest, now_ms: float) -> None:
        if self._is_named(token, request.voter) and self._may_change(token):
            operation = RemoveVoter(token, request, now_ms + self._timeout_ms)
            self._pending = operation if operation.begin(self._leader) else None

    def update(self, token: int, request: UpdateVoterRequest) -> None:
        if (
            self._is_named(token, request.voter)
            and self._listens(token, request.listeners)
            and self._can_be(token, request.versions)
            and self._is_free(token)
        ):
            UpdateVoter(token, request).run(self._leader, self._heard)

    def upgrade(self, token: int, version: int, now_ms: float) -> None:
        leader = self._leader
        if version == leader.kraft_version:
            leader.answer(token, ErrorCode.NONE, None)
        elif version < leader.kraft_version or version not in leader.own.versions:
            message = f"kraft.version cannot go from {leader.kraft_version} to {version}."
            leader.answer(token, ErrorCode.INVALID_UPDATE_VERSION, message)
        elif self._is_free(token):
            operation = UpgradeVersion(token, version, now_ms + self._timeout_ms)
            self._pending = operation if operation.begin(leader, self._heard) else None

    # Going on

    def on_probe(self, replica: ReplicaKey, outcome: ProbeResponse | SendFailure) -> None:
        """What a replica supports. An answer that nobody waits for any more is ignored."""
        operation = self._pending
        if not isinstance(operation, AddVoter) or operation.offset is not None or operation.key != replica:
            return
        if not operation.on_probe(outcome, self._leader):
            self._pending = None

    def on_committed(self) -> None:
        """The high watermark rose."""
        operation = self._pending
        if operation is not None and operation.offset is not None and operation.offset < self._leader.committed:
            self._pending = None
            self._leader.answer(operation.token, ErrorCode.NONE, None)

    def tick(self, now_ms: float) -> None:
        operation = self._pending
        if operation is not None and now_ms >= operation.deadline:
            self._pending = None
            message = "The change was not committed in time; it may still be." if operation.offset is not None else None
            self._leader.answer(operation.token, ErrorCode.REQUEST_TIMED_OUT, message)

    def abandon(self) -> None:
        """This node does not lead any more."""
        operation, self._pending = self._pending, None
        if operation is not None:
            self._leader.answer(operation.token, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)

    @property
    def has_removed_leader(self) -> bool:
        """Whether this leader is no voter by a committed record, and must resign."""
        leader, offset = self._leader, self._leader.voters_offset
        return not leader.voters.has(leader.own.key) and offset is not None and offset < leader.committed

    # What every change asks

    def _is_named(self, token: int, key: ReplicaKey) -> bool:
        if key.id >= 0 and key.directory_id != ZERO_UUID:
            return True
        return _refuse(self._leader, token, ErrorCode.INVALID_REQUEST, "A voter has an id and a directory id.")

    def _listens(self, token: int, listeners: Listeners) -> bool:
        name = self._leader.default_listener
        if any(each.name == name for each in listeners):
            return True
        return _refuse(self._leader, token, ErrorCode.INVALID_REQUEST, f"A voter listens under {name}.")

    def _can_be(self, token: int, versions: KRaftVersions) -> bool:
        if 0 <= versions.minimum <= versions.maximum:
            return True
        return _refuse(self._leader, token, ErrorCode.INVALID_REQUEST, f"{versions} is no range of versions.")

    def _may_change(self, token: int) -> bool:
        if not self._is_free(token):
            return False
        if self._leader.kraft_version >= DYNAMIC_VERSION:
            return True
        message = "The voters are configured: kraft.version 0 does not let them change."
        return _refuse(self._leader, token, ErrorCode.UNSUPPORTED_VERSION, message)

    def _is_free(self, token: int) -> bool:
        """Whether the change before this one is over, and this leader may make another."""
        leader = self._leader
        if self._pending is not None:
            return _refuse(leader, token, ErrorCode.REQUEST_TIMED_OUT, "Another change is under way.")
        if leader.committed < 0:
            return _refuse(leader, token, ErrorCode.REQUEST_TIMED_OUT, "The leader has committed nothing yet.")
        if leader.voters_offset is not None and leader.voters_offset >= leader.committed:
            return _refuse(leader, token, ErrorCode.REQUEST_TIMED_OUT, "The last change is not committed yet.")
        return True


def _refuse(leader: ChangingLeader, token: int, error: ErrorCode, message: str) -> bool:
    """Answers; False, for the change does not go on."""
    leader.answer(token, error, message)
    return False
