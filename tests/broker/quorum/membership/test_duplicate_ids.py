"""Two controllers that are configured with one node id and join the voters automatically (KIP-1186)."""

from dataclasses import replace

from tests.scenarios.quorum.scenario import QuorumScenario
from tests.support.harnesses.quorum_harness import Disk, Node, directory, endpoint, listeners
from tests.support.quorum_values import replica_key

TWIN = 40
"""The place of the second node 4 in the harness, and the number of its endpoint."""


def with_twin() -> QuorumScenario:
    """Start voters 1, 2 and 3 and two auto-joining nodes with id 4, of which the first becomes a voter."""
    stage = QuorumScenario()
    for command in ("quorum 1 2 3", "node 4 auto-join", "start 1 2 3 4", "advance 8000"):
        stage.run(command)
    assert 4 in stage.harness.leader().up.facts.voters
    harness, first = stage.harness, stage.harness.nodes[4]
    settings = replace(first.settings, key=replica_key(4, directory(4, 2)), listeners=listeners(TWIN))
    harness.nodes[TWIN] = Node(harness, settings, Disk(settings.key.directory_id))
    harness.by_endpoint[endpoint(TWIN)] = TWIN
    harness.nodes[TWIN].start()
    return stage


def test_nodes_with_one_id_do_not_remove_each_other_in_turns() -> None:
    stage = with_twin()
    before = stage.harness.leader().up.facts.log_end_offset
    stage.run("advance 60000")
    leader = stage.harness.leader()
    assert leader.up.facts.log_end_offset == before
    assert leader.up.facts.voters.keys == {replica_key(each, directory(each)) for each in (1, 2, 3, 4)}


def test_second_node_joins_after_the_first_has_stopped() -> None:
    stage = with_twin()
    for command in ("advance 20000", "stop 4", "advance 30000"):
        stage.run(command)
    assert replica_key(4, directory(4, 2)) in stage.harness.leader().up.facts.voters.keys


def test_operator_removes_a_voter_whose_node_lost_its_disk() -> None:
    """The former directory had its last contact before the new one had its first."""
    stage = QuorumScenario()
    for command in (
        "quorum 1 2 3",
        "start 1 2 3",
        "advance 1200",
        "stop 3",
        "wipe 3",
        "start 3",
        "advance 100",
        "remove 3.1",
        "advance 100",
    ):
        stage.run(command)
    assert stage.harness.leader().up.facts.voters.ids == (1, 2)
