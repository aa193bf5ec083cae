"""Choice of faults in a chaos run, without nodes and network."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.chaos.__main__ import missing_kinds
from tests.chaos.availability import Fault
from tests.chaos.faults import DEAD, PAIR_CUT, REQUIRED, WITHOUT_CONTROLLERS, Faults
from tests.chaos.network import Link, Plane
from tests.chaos.nodes import ChaosCluster
from tests.support.kafka.kraft_nodes import Make


class RecordedNetwork:
    """A network that records cuts."""

    refusal: str | None = None
    own_address = "127.0.0.1"

    def __init__(self) -> None:
        self.cuts: list[Sequence[Link]] = []
        self.healed: list[Sequence[Link]] = []
        self.on_cut: Callable[[], None] = lambda: None

    def addresses(self, node: int) -> tuple[str, str]:
        return f"127.0.0.1:{9000 + node}", f"127.0.0.1:{9500 + node}"

    def run_address(self, node: int) -> str:
        raise NotImplementedError

    def command(self, _host: int, command: Sequence[str]) -> list[str]:
        return list(command)

    def cut(self, links: Sequence[Link]) -> None:
        self.cuts.append(links)
        self.on_cut()

    def heal(self, links: Sequence[Link]) -> None:
        self.healed.append(links)


@pytest.fixture
def network() -> RecordedNetwork:
    return RecordedNetwork()


@pytest.fixture
def faults(network: RecordedNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Faults:
    monkeypatch.setattr("tests.chaos.faults.time.sleep", lambda _seconds: None)
    cluster = ChaosCluster(tmp_path, Make.OTTLA, 3, network)
    return Faults(cluster, network, random.Random(1), unclean=False)


def test_pair_cut_leaves_the_third_node_and_the_controllers_connected(faults: Faults, network: RecordedNetwork) -> None:
    dict(faults.kinds())[PAIR_CUT](1)
    ((there, back),) = network.cuts
    assert {there.source, there.target} == {back.source, back.target}
    assert (there.source, back.target) == (1, 1)
    assert there.plane is back.plane is Plane.DATA
    assert network.healed == network.cuts


def test_isolation_cuts_the_controller_listeners_alone(faults: Faults, network: RecordedNetwork) -> None:
    log = faults.cluster[2].directory / "node.log"
    log.parent.mkdir(parents=True)
    log.write_text("INFO deleted a remote segment before the fault\n")

    def delete_remotely() -> None:
        log.write_text(log.read_text() + "INFO deleted a remote segment in the fault\n")

    network.on_cut = delete_remotely
    dict(faults.kinds())[WITHOUT_CONTROLLERS](2)
    assert faults.isolated_deletions == 1
    (links,) = network.cuts
    assert {(link.source, link.target) for link in links} == {(2, 1), (1, 2), (2, 3), (3, 2)}
    assert {link.plane for link in links} == {Plane.CONTROL}


def test_dead_node_is_no_longer_a_victim(faults: Faults) -> None:
    faults.cluster.bury(2)
    assert faults.cluster.ids == [1, 3]
    assert len(faults.cluster.nodes) == 3


def test_long_run_must_contain_the_required_faults(faults: Faults, network: RecordedNetwork) -> None:
    faults.done += [Fault(kind, 1, 0, 1) for kind in REQUIRED if kind != DEAD]
    assert missing_kinds(faults, 10) == [DEAD]
    assert missing_kinds(faults, 2) == []
    network.refusal = "no namespaces"
    faults.done.clear()
    assert missing_kinds(faults, 10) == [DEAD]
