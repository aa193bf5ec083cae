"""The reasons why a quorum has not settled: no leader, uncommitted records, nodes that are behind."""

from typing import TYPE_CHECKING

from tests.simulation.quorum.history import Observed
from tests.simulation.quorum.node import Node

if TYPE_CHECKING:
    from tests.simulation.quorum.simulation import QuorumSimulator


class Settling:
    """Judges the nodes that are not dead for good."""

    def __init__(self, simulation: "QuorumSimulator") -> None:
        self._simulation = simulation

    @property
    def leader(self) -> tuple[Node, Observed] | None:
        """Return the leader of the latest epoch, or None."""
        checker = self._simulation.checker
        leaders = [
            (now.epoch, node.id, node, now)
            for node in self._simulation.nodes.values()
            if (now := checker.observed(node.id)) is not None and now.is_leader
        ]
        if not leaders:
            return None
        _, _, node, now = max(leaders, key=lambda each: each[:2])
        return node, now

    def unled_reason(self) -> str | None:
        """Return why no leader has committed everything in its log; None if one has."""
        leader = self.leader
        if leader is None:
            return "there is no leader"
        node, now = leader
        if now.high_watermark != now.log_end_offset:
            return f"leader {node.id} has committed {now.high_watermark} of {now.log_end_offset}"
        return None

    def unsettled_replica_reason(self) -> str | None:
        """Return why some live node is behind the leader; None if none is."""
        if (reason := self.unled_reason()) is not None or self.leader is None:
            return reason
        leader, now = self.leader
        for node in self._simulation.nodes.values():
            if not node.is_dead:
                reason = self._reason_of(node, leader.id, now.epoch, now.log_end_offset)
                if reason is not None:
                    return f"node {node.id} {reason}"
        return None

    def unsettled_reason(self) -> str | None:
        """Return why the quorum has not settled at the end, when controllers have joined the voters."""
        reason = self.unsettled_replica_reason()
        if reason is not None or self.leader is None:
            return reason
        _, now = self.leader
        if self._simulation.scenario.auto_join and now.kraft_version > 0:
            nodes = self._simulation.nodes.values()
            outside = [node.id for node in nodes if node.can_vote and not now.voters.has(node.key)]
            if outside:
                return f"nodes {outside} have not joined the voters {now.voters.ids}"
        return None

    def _reason_of(self, node: Node, leader_id: int, epoch: int, end: int) -> str | None:
        now, replica = self._simulation.checker.observed(node.id), node.replica
        if now is None or replica is None:
            return "is not up"
        if (now.epoch, now.leader_id) != (epoch, leader_id):
            return f"follows {now.leader_id} in epoch {now.epoch} instead of {leader_id} in {epoch}"
        if now.high_watermark != end or replica.state.offset != end:
            return f"has high watermark {now.high_watermark}, applied {replica.state.offset}, of {end}"
        return "has pending work" if replica.is_busy else None
