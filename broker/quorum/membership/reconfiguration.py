"""Voter changes on the leader: add, remove, update a voter, and upgrade to kraft.version 1 (KIP-853, KAFKA-16538).

Theory. A voter set is in force from its append on, committed or not. Two sets that differ by one voter cannot decide
independently, so one change at a time is safe if (a) the previous change is committed, and (b) the leader has committed
a record of its own epoch: otherwise two leaders, each without the other's uncommitted change, could continue from sets
that differ by two voters (Ongaro's correction of 2015). Every change must meet both conditions, also one that keeps the
set, because it is a control record too.

Each operation is one class, whose docstring is its protocol. Operations act through `ChangingLeader` only.
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
from protocol.ids import BrokerId, Offset
from protocol.primitives import ZERO_UUID, uuid_to_text

DYNAMIC_VERSION: Final = 1
"""The first kraft.version at which voters may change."""


class ChangingLeader(Protocol):
    """The leader as used by voter changes. Offsets of -1 mean unknown."""

    @property
    def own(self) -> VoterNode:
        """The voter entry of this node with its present listeners and versions."""
        ...

    @property
    def default_listener(self) -> str: ...

    @property
    def voters(self) -> VoterSet: ...

    @property
    def voters_offset(self) -> Offset | None:
        """The offset of the voters record; None if the voters are configured."""
        ...

    @property
    def kraft_version(self) -> int: ...

    @property
    def committed(self) -> Offset:
        """The high watermark; -1 before a record of the leader's epoch is committed."""
        ...

    def is_caught_up(self, replica: ReplicaKey) -> bool:
        """Whether an observer with exactly this key had the whole log within the last fetch timeout."""
        ...

    def namesake(self, voter: ReplicaKey) -> ReplicaKey | None:
        """Return a running replica with the id of a running voter and another directory id, or None."""
        ...

    def probe(self, replica: ReplicaKey, endpoint: SocketAddress) -> bool:
        """Request a node's supported versions; the outcome goes to `on_probe`. Return False if the node is busy."""
        ...

    def append_voters(self, kraft_version: int | None, voters: VoterSet) -> Offset:
        """Append one control batch, with a kraft.version record if given, and put the voters in force.

        Return the batch's last offset.
        """
        ...

    def respond(self, token: int, error: ErrorCode, message: str | None) -> None: ...


class AddVoter:
    """Adds a replica to the voters.

    1. The request has an id, a directory id and the default controller listener: else INVALID_REQUEST.
    2. No other change is in progress, the last one and a record of this epoch are committed: else REQUEST_TIMED_OUT,
       after which clients retry. kraft.version permits voter changes: else UNSUPPORTED_VERSION.
    3. No voter has the id, with any directory id: else DUPLICATE_VOTER. After a disk loss, remove the voter first.
    4. The replica's default listener is queried for its supported versions. No response in time: REQUEST_TIMED_OUT.
    5. The versions include the kraft.version in force: else INVALID_REQUEST.
    6. The replica had the whole log within the last fetch timeout, so that it does not delay commits: else
       REQUEST_TIMED_OUT.
    7. The new set is appended and in force. A request that does not wait for the commit is completed: the replica's own
       fetch, which the commit may need, would otherwise wait behind this response (KIP-1186).
    8. A majority of the new set commits the record: success.
    9. The timeout elapses first: REQUEST_TIMED_OUT, although the record may still be committed.
    """

    def __init__(self, token: int, request: AddVoterRequest, deadline: float) -> None:
        self.token = token
        self.deadline = deadline
        self.offset: Offset | None = None
        """The offset of the voters record; None before its append."""
        self._request = request

    @property
    def key(self) -> ReplicaKey:
        return self._request.voter

    def begin(self, leader: ChangingLeader) -> bool:
        """Execute steps 3 and 4. Return whether the change continues."""
        if self.key.id in leader.voters:
            message = f"Node {self.key.id} is a voter already."
            return _fail(leader, self.token, ErrorCode.DUPLICATE_VOTER, message)
        endpoint = VoterNode(self.key, self._request.listeners).endpoint(leader.default_listener)
        assert endpoint is not None
        if leader.probe(self.key, endpoint):
            return True
        return _fail(leader, self.token, ErrorCode.REQUEST_TIMED_OUT, f"Node {self.key.id} cannot be asked now.")

    def on_probe(self, outcome: ProbeResponse | SendFailure, leader: ChangingLeader) -> bool:
        """Execute steps 5 to 7. Return whether the change continues."""
        if not isinstance(outcome, ProbeResponse) or outcome.error:
            message = f"Node {self.key.id} did not say what it supports: {outcome.error.name}."
            return _fail(leader, self.token, ErrorCode.REQUEST_TIMED_OUT, message)
        if leader.kraft_version not in outcome.versions:
            message = f"Node {self.key.id} does not support kraft.version {leader.kraft_version}."
            return _fail(leader, self.token, ErrorCode.INVALID_REQUEST, message)
        if not leader.is_caught_up(self.key):
            message = f"Node {self.key.id} has not fetched the whole metadata log yet."
            return _fail(leader, self.token, ErrorCode.REQUEST_TIMED_OUT, message)
        self.offset = leader.append_voters(
            None, leader.voters.with_voter(VoterNode(self.key, self._request.listeners, outcome.versions))
        )
        if not self._request.ack_when_committed:
            leader.respond(self.token, ErrorCode.NONE, None)
        return self._request.ack_when_committed


class RemoveVoter:
    """Removes a voter, which becomes an observer.

    1. The request has an id and a directory id: else INVALID_REQUEST.
    2. As for AddVoter.
    3. A voter has exactly this key, and is not the last voter: else VOTER_NOT_FOUND.
    4. No other running node has the id of the running voter: else INVALID_REQUEST. Two nodes with one id that join
       automatically would remove each other in turns.
    5. The new set is appended and in force. A leader that removes itself continues without counting itself.
    6. A majority of the new set commits the record: success. A removed leader then resigns.
    7. The timeout elapses first: REQUEST_TIMED_OUT, although the record may still be committed.
    """

    def __init__(self, token: int, request: RemoveVoterRequest, deadline: float) -> None:
        self.token = token
        self.deadline = deadline
        self.offset: Offset | None = None
        self._request = request

    def begin(self, leader: ChangingLeader) -> bool:
        """Execute steps 3 to 5. Return whether the change continues."""
        key = self._request.voter
        if key not in leader.voters.keys:
            return _fail(leader, self.token, ErrorCode.VOTER_NOT_FOUND, f"Node {key.id} is no voter, or elsewhere.")
        if len(leader.voters) == 1:
            return _fail(leader, self.token, ErrorCode.VOTER_NOT_FOUND, f"Node {key.id} is the last voter.")
        if (other := leader.namesake(key)) is not None:
            directories = f"{uuid_to_text(key.directory_id)} and {uuid_to_text(other.directory_id)}"
            message = f"Two running nodes have the id {key.id}, with directory ids {directories}; stop one of them."
            return _fail(leader, self.token, ErrorCode.INVALID_REQUEST, message)
        self.offset = leader.append_voters(None, leader.voters.without(key))
        return True


class UpdateVoter:
    """Updates a voter's own listeners and supported versions.

    1. The request has an id, a directory id, the default controller listener and a valid version range: else
       INVALID_REQUEST.
    2. As for AddVoter, but also allowed at kraft.version 0 (7).
    3. The replica is a voter: else VOTER_NOT_FOUND.
    4. The range includes the kraft.version in force: else INVALID_REQUEST.
    5. If the entry differs, the set with the new entry is appended and in force.
    6. The response leaves at once: the commit may need the voter's next fetch, which waits behind it (KAFKA-16534).
    7. At kraft.version 0 nothing is appended. The leader keeps the entry in memory while it leads: the upgrade to
       version 1 needs the directory ids and ranges of all voters.
    """

    def __init__(self, token: int, request: UpdateVoterRequest) -> None:
        self.token = token
        self.voter = VoterNode(request.voter, request.listeners, request.versions)

    def run(self, leader: ChangingLeader, updated_voters: dict[BrokerId, VoterNode]) -> None:
        """Execute steps 3 to 7."""
        voter, name = self.voter, f"Node {self.voter.key.id}"
        if not leader.voters.has(voter.key):
            _fail(leader, self.token, ErrorCode.VOTER_NOT_FOUND, f"{name} is no voter, or elsewhere.")
        elif leader.kraft_version not in voter.versions:
            message = f"{name} does not support kraft.version {leader.kraft_version}."
            _fail(leader, self.token, ErrorCode.INVALID_REQUEST, message)
        else:
            self._accept(leader, updated_voters)
            leader.respond(self.token, ErrorCode.NONE, None)

    def _accept(self, leader: ChangingLeader, updated_voters: dict[BrokerId, VoterNode]) -> None:
        if leader.kraft_version < DYNAMIC_VERSION:
            updated_voters[self.voter.key.id] = self.voter
        elif leader.voters.get(self.voter.key.id) != self.voter:
            leader.append_voters(None, leader.voters.updated(self.voter))


class UpgradeVersion:
    """Upgrades from static voters to dynamic voters (KAFKA-16538).

    1. The version is not lower than the version in force and is supported by this node: else INVALID_UPDATE_VERSION.
       The version in force succeeds at once.
    2. As for AddVoter, without the check of kraft.version.
    3. Every other voter has sent UpdateVoter to this leader and supports the version: else INVALID_UPDATE_VERSION, with
       the ids of the others. An unreachable voter blocks the upgrade.
    4. One control batch with the version and the same voters, now with directory ids, is appended and in force.
    5. The batch is committed: success.
    6. The timeout elapses first: REQUEST_TIMED_OUT, although the batch may still be committed.
    """

    def __init__(self, token: int, version: int, deadline: float) -> None:
        self.token = token
        self.deadline = deadline
        self.offset: Offset | None = None
        self._version = version

    def begin(self, leader: ChangingLeader, updated_voters: dict[BrokerId, VoterNode]) -> bool:
        """Execute steps 3 and 4. Return whether the change continues."""
        known = {**updated_voters, leader.own.key.id: leader.own}
        unready = [each for each in leader.voters.ids if each not in known or self._version not in known[each].versions]
        if unready:
            message = f"Of the voters, {unready} do not support kraft.version {self._version} or have not said so."
            return _fail(leader, self.token, ErrorCode.INVALID_UPDATE_VERSION, message)
        self.offset = leader.append_voters(self._version, VoterSet(known[each] for each in leader.voters.ids))
        return True


_Pending: TypeAlias = AddVoter | RemoveVoter | UpgradeVersion


class Reconfiguration:
    """The voter changes of one leader in one epoch, one at a time. The caller validates cluster id, epoch and role.

    Times are monotonic, in ms.
    """

    def __init__(self, leader: ChangingLeader, timeout_ms: float) -> None:
        self._leader = leader
        self._timeout_ms = timeout_ms
        self._pending: _Pending | None = None
        self._updated_voters: dict[BrokerId, VoterNode] = {}

    @property
    def deadline(self) -> float:
        """The time at which `tick` must run."""
        return inf if self._pending is None else self._pending.deadline

    @property
    def is_pending(self) -> bool:
        return self._pending is not None

    # Requests

    def add(self, token: int, request: AddVoterRequest, now_ms: float) -> None:
        if (
            self._has_key(token, request.voter)
            and self._has_default_listener(token, request.listeners)
            and self._may_change_voters(token)
        ):
            operation = AddVoter(token, request, now_ms + self._timeout_ms)
            self._pending = operation if operation.begin(self._leader) else None

    def remove(self, token: int, request: RemoveVoterRequest, now_ms: float) -> None:
        if self._has_key(token, request.voter) and self._may_change_voters(token):
            operation = RemoveVoter(token, request, now_ms + self._timeout_ms)
            self._pending = operation if operation.begin(self._leader) else None

    def update(self, token: int, request: UpdateVoterRequest) -> None:
        if (
            self._has_key(token, request.voter)
            and self._has_default_listener(token, request.listeners)
            and self._has_valid_range(token, request.versions)
            and self._is_ready(token)
        ):
            UpdateVoter(token, request).run(self._leader, self._updated_voters)

    def upgrade(self, token: int, version: int, now_ms: float) -> None:
        leader = self._leader
        if version == leader.kraft_version:
            leader.respond(token, ErrorCode.NONE, None)
        elif version < leader.kraft_version or version not in leader.own.versions:
            message = f"kraft.version cannot go from {leader.kraft_version} to {version}."
            leader.respond(token, ErrorCode.INVALID_UPDATE_VERSION, message)
        elif self._is_ready(token):
            operation = UpgradeVersion(token, version, now_ms + self._timeout_ms)
            self._pending = operation if operation.begin(leader, self._updated_voters) else None

    # Progress

    def on_probe(self, replica_id: BrokerId, outcome: ProbeResponse | SendFailure) -> None:
        """Process a replica's supported versions. An outcome for an ended change is ignored.

        One probe of a replica id is in flight at a time, so an outcome for the id in progress is not of an earlier one.
        """
        operation = self._pending
        if not isinstance(operation, AddVoter) or operation.offset is not None or operation.key.id != replica_id:
            return
        if not operation.on_probe(outcome, self._leader):
            self._pending = None

    def on_committed(self) -> None:
        """Complete a change that is committed."""
        operation = self._pending
        if operation is not None and operation.offset is not None and operation.offset < self._leader.committed:
            self._pending = None
            self._leader.respond(operation.token, ErrorCode.NONE, None)

    def tick(self, now_ms: float) -> None:
        operation = self._pending
        if operation is not None and now_ms >= operation.deadline:
            self._pending = None
            message = "The change was not committed in time; it may still be." if operation.offset is not None else None
            self._leader.respond(operation.token, ErrorCode.REQUEST_TIMED_OUT, message)

    def abandon(self) -> None:
        """Fail the change in progress, because this node is no longer the leader."""
        operation, self._pending = self._pending, None
        if operation is not None:
            self._leader.respond(operation.token, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)

    @property
    def has_removed_leader(self) -> bool:
        """Whether a committed record has removed this leader from the voters, so that it must resign."""
        leader, offset = self._leader, self._leader.voters_offset
        return not leader.voters.has(leader.own.key) and offset is not None and offset < leader.committed

    # Checks of every change

    def _has_key(self, token: int, key: ReplicaKey) -> bool:
        if key.id >= 0 and key.directory_id != ZERO_UUID:
            return True
        return _fail(self._leader, token, ErrorCode.INVALID_REQUEST, "A voter has an id and a directory id.")

    def _has_default_listener(self, token: int, listeners: Listeners) -> bool:
        name = self._leader.default_listener
        if any(each.name == name for each in listeners):
            return True
        return _fail(self._leader, token, ErrorCode.INVALID_REQUEST, f"A voter listens under {name}.")

    def _has_valid_range(self, token: int, versions: KRaftVersions) -> bool:
        if 0 <= versions.minimum <= versions.maximum:
            return True
        return _fail(self._leader, token, ErrorCode.INVALID_REQUEST, f"{versions} is no range of versions.")

    def _may_change_voters(self, token: int) -> bool:
        if not self._is_ready(token):
            return False
        if self._leader.kraft_version >= DYNAMIC_VERSION:
            return True
        message = "The voters are configured: kraft.version 0 does not let them change."
        return _fail(self._leader, token, ErrorCode.UNSUPPORTED_VERSION, message)

    def _is_ready(self, token: int) -> bool:
        """Whether the previous change is committed, and this leader may make another."""
        leader = self._leader
        if self._pending is not None:
            return _fail(leader, token, ErrorCode.REQUEST_TIMED_OUT, "Another change is under way.")
        if leader.committed < 0:
            return _fail(leader, token, ErrorCode.REQUEST_TIMED_OUT, "The leader has committed nothing yet.")
        if leader.voters_offset is not None and leader.voters_offset >= leader.committed:
            return _fail(leader, token, ErrorCode.REQUEST_TIMED_OUT, "The last change is not committed yet.")
        return True


def _fail(leader: ChangingLeader, token: int, error: ErrorCode, message: str) -> bool:
    """Respond with an error. Return False, because the change does not continue."""
    leader.respond(token, error, message)
    return False
