"""The nodes that could win an election, by the content of the disks alone.

The voters in force are those of the last voters record in the log of a node that can win. A node can win if a majority
of these voters has a log that is not longer than the node's own, and is reachable at the addresses in that record.
"""

from collections.abc import Iterable

from broker.quorum.membership.voters import VoterSet
from tests.simulation.quorum.history import Observed
from tests.simulation.quorum.node import LISTENER, Node


def electable(alive: Iterable[Node], static: VoterSet, seen: "dict[int, Observed | None]") -> list[Node]:
    """Return the nodes that could win with the votes of live nodes only; `static` are the configured voters."""
    nodes = {node.id: node for node in alive if node.can_vote}
    return [node for node in nodes.values() if _can_win(node, nodes, static, seen.get(node.id))]


def _can_win(node: Node, nodes: dict[int, Node], static: VoterSet, seen: Observed | None) -> bool:
    voters = node.disk.replayed_voters() or static
    if not voters.has(node.key) and not _may_stand_without_a_vote(node, seen):
        return False
    end = node.disk.log_end
    supporters = [
        other
        for voter in voters
        if (other := nodes.get(voter.key.id)) is not None
        and voter.is_replica(other.key)
        and (other is node or voter.endpoint(LISTENER) in other.endpoints)
        and other.disk.log_end <= end
    ]
    return len(supporters) >= voters.majority


def _may_stand_without_a_vote(node: Node, seen: Observed | None) -> bool:
    """Whether the log of a node has its own removal, of which the node cannot know that it is committed."""
    sets = node.disk.voter_sets()
    if len(sets) < 2 or seen is None:
        return False
    offset = sets[-1][0]
    is_known_committed = seen.decided is not None and seen.decided > offset
    return sets[-2][1].has(node.key) and not is_known_committed
