"""Changes of the voters by an operator: additions, removals, and controllers whose disks are replaced.

Two rules keep the quorum recoverable, as in the quorum plane. A controller loses its disk or its life only while the
others form a majority of every voter set in force on any node. No live voter is removed while another voter is lost.
"""

from typing import Final

from broker.quorum.identity import ReplicaKey
from broker.quorum.membership.voters import VoterSet
from broker.quorum.messages import AddVoterRequest, ChangeVotersResponse, RemoveVoterRequest, Response
from protocol.errors import ErrorCode
from tests.simulation.cluster.fault_source import FaultSource, ScheduleState
from tests.simulation.quorum.node import Node as QuorumNode
from tests.simulation.replication.scenario import CLUSTER_ID
from tests.simulation.world import Process

_TRY_AGAIN: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_TRIES: Final = 6


class VoterChanges(FaultSource):
    """The operator of the quorum."""

    def __init__(self, state: ScheduleState) -> None:
        super().__init__(state)
        self._number = 0
        self._open: dict[int, Process] = {}
        """The processes that were asked for a change and have not responded."""

    @property
    def has_open(self) -> bool:
        """Whether a running process owes a response."""
        return any(process.is_alive for process in self._open.values())

    def add_voter(self) -> None:
        """Add a controller that is no voter."""
        voters = {key for voters in self._voter_sets() for key in voters.keys}
        nodes = [node for node in self._controllers_on_disk() if node.key not in voters and self._is_up(node)]
        if nodes:
            node = self._random.choice(nodes)
            self._ask(AddVoterRequest(CLUSTER_ID, node.key, node.listeners), f"add {node.id}", "added voters")

    def remove_voter(self) -> None:
        """Remove a voter, a lost one before others; live voters only while no voter is lost."""
        sets = self._voter_sets()
        keys = sorted({key for voters in sets for key in voters.keys})
        lost = [key for key in keys if self._is_lost(key)]
        may_shrink = min((len(voters) for voters in sets), default=0) > 1 and not lost
        if candidates := lost or (keys if may_shrink else []):
            key = self._random.choice(candidates)
            self._ask(RemoveVoterRequest(CLUSTER_ID, key), f"remove {key.id}", "removed voters", tries=1)

    def replace_disk(self) -> None:
        """Replace the metadata disk of a dedicated controller by an empty one."""
        simulation = self._simulation
        nodes = [node for node in self._controllers_on_disk() if node.id not in simulation.nodes]
        nodes = [node for node in nodes if node.id not in simulation.dead and self.may_lose(node.id)]
        if not nodes or self._is_over:
            return
        node = self._random.choice(nodes)
        self._note(f"the disk of controller {node.id} is replaced")
        self._count("replaced controllers")
        simulation.crash(node.id, power=True)
        simulation.wipe_metadata(node)
        simulation.start_later(node.id)

    def may_lose(self, node_id: int) -> bool:
        """Whether the other nodes form a majority of every voter set without this one."""
        if not self._simulation.quorum_nodes[node_id].can_vote:
            return True
        return not self.has_open and all(
            len(self._lost_of(voters) | ({node_id} & set(voters.ids))) <= len(voters) - voters.majority
            for voters in self._voter_sets()
        )

    def _ask(self, request: AddVoterRequest | RemoveVoterRequest, what: str, counted: str, tries: int = _TRIES) -> None:
        """Send a request to the active controller; repeat it, as operators do, if it failed."""
        active = self._simulation.active()
        if self._is_over or active is None or self._is_stale(request):
            return
        self._number += 1
        number, asked, checker = self._number, active.replica, self._simulation.checker
        self._open[number] = active.process
        self._note(f"controller {asked.node.id} receives the request to {what}")

        def answered(response: Response) -> None:
            self._open.pop(number, None)
            assert isinstance(response, ChangeVotersResponse)
            checker.quorum.on_response_leaves(asked.node.id, request, response)
            self._note(f"controller {asked.node.id} responds to {what}: {response.error.name}")
            checker.counts.add(counted, int(not response.error))
            if response.error in _TRY_AGAIN and tries > 1:
                self._after(self._random.uniform(100.0, 1_000.0), again)

        def again() -> None:
            self._ask(request, what, counted, tries - 1)

        checker.quorum.on_request_arrives(asked.node.id, request)
        self._world.run(active.process, asked.receive, request, answered)

    def _is_stale(self, request: AddVoterRequest | RemoveVoterRequest) -> bool:
        """Whether the controller to add has lost its disk since: an operator looks up its directory id."""
        return isinstance(request, AddVoterRequest) and self._is_lost(request.voter)

    def _controllers_on_disk(self) -> list[QuorumNode]:
        """Return all machines of controllers, running or not."""
        return [self._simulation.quorum_nodes[node_id] for node_id in self._simulation.controller_ids]

    def _is_up(self, node: QuorumNode) -> bool:
        return self._simulation.is_up(node.id)

    def _voter_sets(self) -> list[VoterSet]:
        """Return all voter sets in force on any node, those of nodes that are down included."""
        checker = self._simulation.checker.quorum
        nodes = self._simulation.quorum_nodes.values()
        seen = (checker.observed(node.id) for node in nodes)
        on_disk = (node.disk.replayed_voters() for node in nodes)
        return [*(voters for voters in on_disk if voters is not None), *(now.voters for now in seen if now is not None)]

    def _is_lost(self, key: ReplicaKey) -> bool:
        node = self._simulation.quorum_nodes.get(key.id)
        return node is None or key.id in self._simulation.dead or not node.key.matches(key)

    def _lost_of(self, voters: VoterSet) -> set[int]:
        return {voter.key.id for voter in voters if self._is_lost(voter.key)}
