"""A metadata quorum of an Apache Kafka controller and two Ottla controllers: elections, replication and catch-up."""

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
# Apache Kafka writes snapshots by log size and cannot be requested to write one.
OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "500"}


@pytest.fixture
def voters(tmp_path: Path) -> Iterator[KraftNodes]:
    """Return three controllers, neither formatted nor started."""
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    apache = KraftNode(tmp_path / "apache", Make.APACHE, APACHE, settings=OFTEN)
    with KraftNodes([apache, *(KraftNode(tmp_path / f"{n}", Make.OTTLA, n) for n in (OTTLA_2, OTTLA_3))]) as nodes:
        yield nodes


@pytest.fixture(params=["static", "dynamic"])
def quorum(voters: KraftNodes, request: pytest.FixtureRequest) -> KraftNodes:
    """Return the controllers with an elected leader."""
    if request.param == "static":
        voters.format_static()
    else:
        voters.format_dynamic()
    return voters.start()


def test_replicas_hold_the_same_log_under_every_leader(quorum: KraftNodes) -> None:
    epochs = [quorum.quorum().epoch]
    for leader in (APACHE, OTTLA_2, APACHE):
        quorum.hand_over(quorum[leader])
        quorum.change(str(leader * 1000))
        quorum.assert_same_log(ALL)
        epochs.append(quorum.quorum().epoch)
    assert epochs == sorted(epochs)
    assert epochs[-1] > epochs[0]


@pytest.mark.parametrize("deposed", [APACHE, OTTLA_2])
def test_uncommitted_records_of_a_deposed_leader_are_truncated(voters: KraftNodes, deposed: int) -> None:
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
def test_wiped_voter_catches_up_by_snapshot(voters: KraftNodes, leader: int, wiped: int) -> None:
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
    quorum.change("6001")  # earlier records may be in a later snapshot; this one must be fetched as a record
    quorum.assert_same_log([leader, wiped])
    end = int(snapshot.name.partition("-")[0])
    fetched = [path for path in lost.snapshots if int(path.name.partition("-")[0]) >= end]
    assert fetched, "the voter has records below the snapshot"
    assert min(lost.batches()) >= end
    assert fetched[0].read_bytes() == (source.metadata / fetched[0].name).read_bytes()


def cut_snapshot(quorum: KraftNodes, node: KraftNode) -> Path:
    """Let a node write a snapshot of its committed state. Return the file."""
    before = node.snapshots
    if node.make is Make.OTTLA:
        run_ottla("metadata-quorum", "--bootstrap-controller", node.controller_address, "snapshot")
    else:
        for number in range(12):
            quorum.change(str(7000 + number))
    return until(lambda: [path for path in node.snapshots if path not in before], PATIENCE_S, quorum)[-1]
