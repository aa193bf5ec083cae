"""One metadata quorum of both makes: a controller of Apache Kafka's and two of ours elect, replicate and catch up."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka.apache_kafka import unavailable_reason
from tests.support.kafka.kraft_nodes import PATIENCE_S, KraftNode, KraftNodes, Make, until
from tests.support.processes.ottla_node import run_ottla

pytestmark = pytest.mark.interop

APACHE, OTTLA_2, OTTLA_3 = 1, 2, 3
ALL = (APACHE, OTTLA_2, OTTLA_3)
# Apache Kafka cuts snapshots when enough was written, and cannot be asked to.
OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "500"}


@pytest.fixture
def voters(tmp_path: Path) -> Iterator[KraftNodes]:
    """Three controllers, neither formatted nor started."""
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    apache = KraftNode(tmp_path / "apache", Make.APACHE, APACHE, settings=OFTEN)
    with KraftNodes([apache, *(KraftNode(tmp_path / f"{n}", Make.OTTLA, n) for n in (OTTLA_2, OTTLA_3))]) as nodes:
        yield nodes


@pytest.fixture(params=["static", "dynamic"])
def quorum(voters: KraftNodes, request: pytest.FixtureRequest) -> KraftNodes:
    """The same, with a leader."""
    if request.param == "static":
        voters.format_static()
    else:
        voters.format_dynamic()
    return voters.start()


def test_whoever_leads_all_hold_the_same_log(quorum: KraftNodes) -> None:
    epochs = [quorum.quorum().epoch]
    for leader in (APACHE, OTTLA_2, APACHE):
        quorum.hand_over(quorum[leader])
        quorum.change(str(leader * 1000))
        quorum.assert_same_log(ALL)
        epochs.append(quorum.quorum().epoch)
    assert epochs == sorted(epochs)
    assert epochs[-1] > epochs[0]


@pytest.mark.parametrize("deposed", [APACHE, OTTLA_2])
def test_what_a_deposed_leader_wrote_alone_is_truncated(voters: KraftNodes, deposed: int) -> None:
    voters.format_dynamic()
    quorum = voters.start()
    quorum.hand_over(quorum[deposed])
    followers = [node for node in quorum.nodes if node.id != deposed]
    for node in followers:
        node.kill()
    replicated = max(quorum[deposed].batches())
    written = until(lambda: [at for at in quorum[deposed].batches() if at > replicated], PATIENCE_S, quorum)
    alone = quorum[deposed].batches()[written[-1]]
    quorum[deposed].kill()
    for node in followers:
        node.start()
    assert quorum.leader().id != deposed
    quorum.change("5000")
    quorum[deposed].start()
    quorum.caught_up()
    quorum.assert_same_log(ALL)
    assert alone not in quorum[deposed].batches().values()


@pytest.mark.parametrize(("leader", "wiped"), [(APACHE, OTTLA_3), (OTTLA_2, APACHE)], ids=["apache", "ottla"])
def test_a_wiped_voter_comes_back_by_the_snapshot_of_the_others(voters: KraftNodes, leader: int, wiped: int) -> None:
    voters.format_static()
    quorum = voters.start()
    quorum.hand_over(quorum[leader])
    source, lost = quorum[leader], quorum[wiped]
    snapshot = cut_snapshot(quorum, source)
    lost.kill()
    shutil.rmtree(lost.data)
    lost.format(quorum.cluster_id, make=Make.OTTLA)
    lost.start()
    quorum.change("6000")
    quorum.caught_up([wiped])
    quorum.change("6001")  # what was before may be in a later snapshot; this comes as a record
    quorum.assert_same_log([leader, wiped])
    end = int(snapshot.name.partition("-")[0])
    fetched = [path for path in lost.snapshots if int(path.name.partition("-")[0]) >= end]
    assert fetched, "it has the snapshot, not the records below it"
    assert min(lost.batches()) >= end
    assert fetched[0].read_bytes() == (source.metadata / fetched[0].name).read_bytes()


def cut_snapshot(quorum: KraftNodes, node: KraftNode) -> Path:
    """Have a node write a snapshot of what is committed now; its file."""
    before = node.snapshots
    if node.make is Make.OTTLA:
        run_ottla("metadata-quorum", "--bootstrap-controller", node.controller_address, "snapshot")
    else:
        for number in range(12):
            quorum.change(str(7000 + number))
    return until(lambda: [path for path in node.snapshots if path not in before], PATIENCE_S, quorum)[-1]
